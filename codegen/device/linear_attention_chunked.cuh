#pragma once
// Linear attention of many tokens, in chunks of 64, for bf16 and decays of whole heads. With b the running
// sum of a chunk's decays, S the state in front of it and u what each token adds to the state,
//   (I + A) u = beta (v - e^b k S),  A[t][j] = beta_t e^(b_t - b_j) k_t k_j for j < t
//   y = e^b q S + M u,               M[t][j] = e^(b_t - b_j) q_t k_j for j <= t
//   S' = e^(b_end) S + sum of e^(b_end - b_j) k_j u_j
// Without beta, u is v. Differences of b are those of f64, so that decays may be as large as they like, of
// both signs.
//
// A block has 64 columns of a head. For 16 of them there are two warps, each with its own copy of that part
// of the state in registers: one computes what the tokens add to it, one what they read of it. The fragments
// of all products with it are transposed, so that sums of one product are the left operand of the next. What
// is an f32 goes into products as two numbers of bf16, which together have its digits to 2^-17. The inverses
// of the diagonal blocks of I + A, 16 x 16, are computed in f32; the rest is substitution by blocks. Where
// what a token adds is infinite, results of the tokens before it may be NaN as well, up to 15 of them. Rows
// of queries, keys and values can be read 16 bytes at a time.

#include "linear_attention_chunks.cuh"

// 16 columns of a state, transposed: sums of 16 x 8 fragments, columns times rows of the state.
template <class Config>
struct ChunkState {
  using Shape = ChunkShape<Config>;
  static constexpr int fragments = Shape::depth / 8;
  f32 at[fragments][4];

  static DEVICE int row(int n, int e) { return 8 * n + (int)lane_id() % 4 * 2 + e % 2; }
  static DEVICE int column(int e) { return (int)lane_id() / 4 + e / 2 * 8; }
  template <class Body>
  DEVICE void load(const Body &body, const StateBlock &block, int first) {
    const auto *const rows = body.state_rows(block.entry, block.head);
#pragma unroll
    for (int n = 0; n < fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        at[n][e] = 0.f;
        if (row(n, e) < Config::depth && first + column(e) < Config::value_depth)
          at[n][e] = to_f32(load_early(rows + row(n, e) * body.state_stride() +
                                       (first + column(e)) * body.state_column_stride()));
      }
  }
  template <class Body>
  DEVICE void store(const Body &body, const StateBlock &block, int first) const {
#pragma unroll
    for (int n = 0; n < fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (row(n, e) < Config::depth && first + column(e) < Config::value_depth)
          body.store_state(block.entry, block.head, row(n, e), first + column(e), Vec<f32, 1>{at[n][e]});
  }
};

// Rows of keys or queries times the state.
template <class Config, class T>
DEVICE void read_state(f32 (&sums)[8][4], const ChunkState<Config> &state, const T *tile) {
  using Shape = ChunkShape<Config>;
  const int place = column_place<Shape::key_pitch>();
#pragma unroll
  for (int k = 0; k < Shape::depth / 16; ++k) {
    const SplitOperand<T> left(state.at[2 * k], state.at[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
      const T *const rows = tile + 8 * n * Shape::key_pitch + 16 * k + place;
      u32 right[2][4];
      ldmatrix_x4(right[0], rows);
      ldmatrix_x4(right[1], rows + 16 * Shape::key_pitch);
      f32(*const four[4])[4] = {&sums[n], &sums[n + 1], &sums[n + 2], &sums[n + 3]};
      left.multiply(four, right);
    }
  }
}

// What the tokens would add if none of the chunk came before them: values, less what the state in front of it
// knows of them.
template <class Config, class T>
DEVICE void begin_updates(f32 (&update)[8][4], const T *values, const ChunkFactors<Config> &factors) {
  using Shape = ChunkShape<Config>;
  const int lane = (int)lane_id();
  const T *const place = values + (lane / 16 * 8 + lane % 8) * Shape::value_pitch + lane / 8 % 2 * 8;
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
    u32 pairs[4];
    ldmatrix_x4_trans(pairs, place + 8 * n * Shape::value_pitch);
#pragma unroll
    for (int fragment = n; fragment < n + 2; ++fragment) {
      const int token = 8 * fragment + lane % 4 * 2;
      Vec<f32, 2> reach = {1.f, 1.f}, beta = {1.f, 1.f};
      if constexpr (Config::decay_width > 0)
        reach = pair_at(factors.reach(token));
      if constexpr (is_corrected<Config>)
        beta = pair_at(factors.beta(token));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        Vec<T, 2> pair;
        copy_bytes(&pair, &pairs[(fragment - n) * 2 + e / 2], 4);
        const f32 value = element_f32(pair, e % 2);
        if constexpr (is_corrected<Config>)
          update[fragment][e] = beta[e % 2] * (value - reach[e % 2] * update[fragment][e]);
        else
          update[fragment][e] = value;
      }
    }
  }
}

// What they do add: block by block, what one adds goes into the right side of the later ones.
template <class Config, class T>
DEVICE void solve_updates(f32 (&update)[8][4], const TokenMatrix<Config, T> &matrix) {
  using Shape = ChunkShape<Config>;
#pragma unroll
  for (int block = 0; block < Shape::blocks; ++block) {
    f32 (&first)[4] = update[2 * block], (&second)[4] = update[2 * block + 1];
    const SplitOperand<T> right_side(first, second);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      first[e] = second[e] = 0.f;
    u32 right[1][4], rest[1][4];
    matrix.load_block(right[0], rest[0], block, block);
    f32(*const own[2])[4] = {&first, &second};
    right_side.multiply(own, right, rest);
    const SplitOperand<T> solved(first, second);
#pragma unroll
    for (int later = block + 1; later < Shape::blocks; ++later) {
      matrix.load_block(right[0], rest[0], later, block);
      f32(*const sums[2])[4] = {&update[2 * later], &update[2 * later + 1]};
      solved.multiply(sums, right, rest);
    }
  }
}

// One block of updates, which two warps share.
template <class Config>
DEVICE f32 *update_place(f32 *updates, int block, int fragment) {
  return updates + ((2 * block + fragment) * 32 + (int)lane_id()) * 4;
}
template <class Config>
DEVICE void share_updates(f32 *updates, const f32 (&update)[8][4]) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
    store_vec(update_place<Config>(updates, n / 2, n % 2),
              Vec<f32, 4>{update[n][0], update[n][1], update[n][2], update[n][3]});
}

// The updates in the state behind the chunk; a reader's results.
template <class Config, class T>
DEVICE void apply_updates(f32 (&result)[8][4], ChunkState<Config> &state, f32 *updates, const T *keys,
                          bool reads, const TokenMatrix<Config, T> &matrix,
                          const ChunkFactors<Config> &factors) {
  using Shape = ChunkShape<Config>;
  if constexpr (Config::decay_width > 0)
#pragma unroll
    for (int n = 0; n < state.fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        state.at[n][e] = state.at[n][e] * factors.whole();
#pragma unroll
  for (int block = 0; block < Shape::blocks; ++block) {
    f32 update[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Vec<f32, 4> four = load_vec<f32, 4>(update_place<Config>(updates, block, i));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        update[i][e] = four[e];
    }
    if (reads) {
      const SplitOperand<T> added(update[0], update[1]);
#pragma unroll
      for (int later = block; later < Shape::blocks; ++later) {
        u32 right[1][4], rest[1][4];
        matrix.load_block(right[0], rest[0], later, block);
        f32(*const sums[2])[4] = {&result[2 * later], &result[2 * later + 1]};
        added.multiply(sums, right, rest);
      }
    }
    if constexpr (Config::decay_width > 0)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Vec<f32, 2> remains = pair_at(factors.remains(16 * block + 8 * i + (int)lane_id() % 4 * 2));
#pragma unroll
        for (int e = 0; e < 4; ++e)
          update[i][e] = update[i][e] * remains[e % 2];
      }
    const SplitOperand<T> remaining(update[0], update[1]);
    constexpr int side_by_side = ChunkState<Config>::fragments % 4 == 0 ? 4 : 2;
#pragma unroll
    for (int n = 0; n < state.fragments; n += side_by_side) {
      const T *const rows = keys + 16 * block * Shape::key_pitch + 8 * n + row_place<Shape::key_pitch>();
      u32 right[side_by_side / 2][4];
      f32(*sums[side_by_side])[4];
#pragma unroll
      for (int i = 0; i < side_by_side; ++i) {
        sums[i] = &state.at[n + i];
        if (i % 2 == 0)
          ldmatrix_x4_trans(right[i / 2], rows + 8 * i);
      }
      remaining.multiply(sums, right);
    }
  }
}

// Turned, so that a lane has neighbouring columns of a token.
template <class Config, class T, class Body>
DEVICE void store_results(const f32 (&result)[8][4], const Body &body, const StateBlock &block, int column,
                          i64 first, i64 tokens) {
  const int lane = (int)lane_id();
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 turned = transpose_matrix(
          packed_pair<T>(result[n][2 * half] * Config::scale, result[n][2 * half + 1] * Config::scale));
      const i64 token = first + 8 * n + lane / 4;
      const int from = column + 8 * half + lane % 4 * 2;
      Vec<T, 2> pair;
      copy_bytes(&pair, &turned, 4);
      if (token < tokens && from < Config::value_depth)
        body.store(block.entry, block.head, token, from,
                   Vec<f32, 2>{element_f32(pair, 0), element_f32(pair, 1)});
    }
}

// What the state in front of the chunk has become for each token.
template <class Config>
DEVICE void decay_results(f32 (&result)[8][4], const ChunkFactors<Config> &factors) {
  if constexpr (Config::decay_width > 0)
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const Vec<f32, 2> reach = pair_at(factors.reach(8 * n + (int)lane_id() % 4 * 2));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        result[n][e] = reach[e % 2] * result[n][e];
    }
}

template <class Config, class Body>
DEVICE void linear_attention_chunked(const Body &body) {
  using T = typename Config::Query;
  using Shape = ChunkShape<Config>;
  T *const stages = reinterpret_cast<T *>(dynamic_shared()), *const matrix = stages + 2 * Shape::stage;
  f32 *const floats = reinterpret_cast<f32 *>(matrix + 4 * Shape::matrix);
  const int warp = (int)thread_x() / 32, slab = warp % Shape::slabs;
  const bool reads = warp >= Shape::slabs;
  const ChunkMatrices<Config, T> matrices = {{matrix, matrix + Shape::matrix},
                                             {matrix + 2 * Shape::matrix, matrix + 3 * Shape::matrix},
                                             floats + slab * Shape::scratch};
  f32 *const updates = floats + Shape::slabs * Shape::scratch + slab * Shape::updates;
  f32 *const all_factors = floats + Shape::slabs * (Shape::scratch + Shape::updates);
  const StateBlock block = state_block<Config>(body, Shape::columns);
  const int column = block.column + 16 * slab;
  const bool has_columns = column < Config::value_depth;
  const i64 tokens = body.tokens();
  ChunkState<Config> state;
  pdl_wait();
  pdl_launch_dependents();
  ChunkLoads<Config> loads;
  copy_chunk<Config>(stages, body, block, 0, tokens);
  cp_async_commit();
  loads.load_next(body, block, 0, tokens);
  state.load(body, block, column);
  loads.publish({all_factors});
  int stage = 0;
#pragma unroll 1
  for (i64 first = 0; first < tokens; first += Shape::chunk, stage ^= 1) {
    const ChunkFactors<Config> factors = {all_factors + stage * Shape::factors};
    const T *const tile = stages + stage * Shape::stage;
    cp_async_wait<0>();
    barrier();
    if (first + Shape::chunk < tokens)
      copy_chunk<Config>(stages + (stage ^ 1) * Shape::stage, body, block, first + Shape::chunk, tokens);
    cp_async_commit();
    loads.load_next(body, block, first + Shape::chunk, tokens);
    matrices.compute_all(tile, factors);
    loads.publish({all_factors + (stage ^ 1) * Shape::factors}); // for the next chunk
    f32 sums[8][4] = {};
    if (has_columns && (reads || is_corrected<Config>))
      read_state<Config>(sums, state, tile + (reads ? Shape::key_tile : 0));
    barrier();
    if (has_columns && !reads) {
      begin_updates<Config>(sums, tile + 2 * Shape::key_tile + 16 * slab, factors);
      if constexpr (is_corrected<Config>)
        solve_updates(sums, matrices.solve);
      share_updates<Config>(updates, sums);
    }
    barrier();
    if (has_columns) {
      if (reads)
        decay_results(sums, factors);
      apply_updates<Config>(sums, state, updates, tile, reads, matrices.read, factors);
      if (reads)
        store_results<Config, T>(sums, body, block, column, first, tokens);
    }
  }
  if (has_columns && reads)
    state.store(body, block, column);
}
