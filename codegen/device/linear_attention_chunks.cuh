#pragma once
// What a chunk of tokens is to linear_attention_chunked.cuh and linear_attention_prepared.cuh before any
// state comes in: its rows in shared memory, its decays, and the matrices over pairs of its tokens.

#include "attention.cuh"
#include "linear_attention.cuh"

template <class Config>
struct ChunkShape {
  static constexpr int chunk = 64, blocks = chunk / 16, slabs = Config::slabs, warps = 2 * slabs,
                       threads = 32 * warps;
  static constexpr int columns = 16 * slabs;
  static constexpr int depth = (Config::depth + 15) / 16 * 16;
  // Rows are 16 bytes longer than needed, so that ldmatrix meets every bank once.
  static constexpr int key_pitch = depth + 8, value_pitch = columns + 8, pitch = chunk + 8,
                       scratch_pitch = 20;
  static constexpr int key_tile = chunk * key_pitch, value_tile = chunk * value_pitch;
  static constexpr int stage = 2 * key_tile + value_tile, matrix = chunk * pitch;
  static constexpr int scratch = 16 * scratch_pitch, factors = 5 * chunk + 4, updates = 16 * chunk;
};

// What the decays and betas of a chunk make, in shared memory.
template <class Config>
struct ChunkFactors {
  using Shape = ChunkShape<Config>;
  f32 *at;
  DEVICE f32 &sum(int token) const { return at[token]; }                        // b in powers of two, and
  DEVICE f32 &rest(int token) const { return at[Shape::chunk + token]; }        // what f32 leaves of it
  DEVICE f32 &reach(int token) const { return at[2 * Shape::chunk + token]; }   // e^b
  DEVICE f32 &remains(int token) const { return at[3 * Shape::chunk + token]; } // e^(b_end - b)
  DEVICE f32 &beta(int token) const { return at[4 * Shape::chunk + token]; }
  DEVICE f32 &whole() const { return at[5 * Shape::chunk]; } // e^b_end
};
DEVICE Vec<f32, 2> pair_at(const f32 &first) { return load_vec<f32, 2>(&first); }

// A lane's two tokens: their decays in one warp, their betas in another, of those that have the fewest blocks
// to compute.
template <class Config>
struct ChunkLoads {
  f32 values[2];

  template <class T>
  DEVICE void take(const T *rows, i64 stride, i64 first, i64 tokens) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const i64 token = first + 2 * (int)lane_id() + i;
      values[i] = token < tokens ? to_f32(load(rows + token * stride)) : 0.f;
    }
  }
  template <class Body>
  DEVICE void load_next(const Body &body, const StateBlock &block, i64 first, i64 tokens) {
    if constexpr (Config::decay_width > 0)
      if (thread_x() / 32 == 6)
        take(body.decay_rows(block.entry, block.head), body.decay_stride(), first, tokens);
    if constexpr (is_corrected<Config>)
      if (thread_x() / 32 == 7)
        take(body.beta_rows(block.entry, block.head), body.beta_stride(), first, tokens);
  }
  DEVICE void publish(const ChunkFactors<Config> &factors) const {
    const int token = 2 * (int)lane_id();
    if (Config::decay_width > 0 && thread_x() / 32 == 6) {
      // Beyond 128 on both sides powers of e are infinite or 0 in f32.
      constexpr f64 log2_e = 1.4426950408889634;
      const f64 first = (f64)max_nan(min_nan(values[0], 128.f), -128.f) * log2_e;
      const f64 second = (f64)max_nan(min_nan(values[1], 128.f), -128.f) * log2_e;
      f64 running = first + second;
#pragma unroll
      for (u32 distance = 1; distance < 32; distance *= 2) {
        const f64 earlier = shuffle_up(running, distance);
        running = lane_id() >= distance ? running + earlier : running;
      }
      const f64 end = shuffle_index(running, 31), sums[2] = {running - second, running};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        factors.sum(token + i) = (f32)sums[i];
        factors.rest(token + i) = (f32)(sums[i] - (f64)(f32)sums[i]);
        factors.reach(token + i) = exp2_near((f32)sums[i]);
        factors.remains(token + i) = exp2_near((f32)(end - sums[i]));
      }
      factors.whole() = exp2_near((f32)end);
    }
    if (is_corrected<Config> && thread_x() / 32 == 7) {
      factors.beta(token) = values[0];
      factors.beta(token + 1) = values[1];
    }
  }
};

// Starts the copy of 64 rows of Width columns, of which `width` are there; zeros elsewhere.
template <class Config, int Width, int Pitch, class T>
DEVICE void copy_rows(T *tile, const T *from, i64 stride, int rows, int width) {
  using Shape = ChunkShape<Config>;
  constexpr int per_row = Width / 8;
#pragma unroll 2
  for (int i = (int)thread_x(); i < Shape::chunk * per_row; i += Shape::threads) {
    const int row = i / per_row, column = i % per_row * 8;
    const bool inside = row < rows && column < width;
    cp_async_16(tile + row * Pitch + column, inside ? from + row * stride + column : from, inside);
  }
}
template <class Config, class Body, class T>
DEVICE void copy_keys(T *stage, const Body &body, const StateBlock &block, i64 first, int rows) {
  using Shape = ChunkShape<Config>;
  copy_rows<Config, Shape::depth, Shape::key_pitch>(
      stage, body.key_rows(block.entry, block.head) + first * body.key_stride(), body.key_stride(), rows,
      Config::depth);
  copy_rows<Config, Shape::depth, Shape::key_pitch>(
      stage + Shape::key_tile, body.query_rows(block.entry, block.head) + first * body.query_stride(),
      body.query_stride(), rows, Config::depth);
}
template <class Config>
DEVICE int rows_of_chunk(i64 first, i64 tokens) {
  constexpr int chunk = ChunkShape<Config>::chunk;
  return tokens - first < chunk ? (int)(tokens - first) : chunk;
}
template <class Config, class Body, class T>
DEVICE void copy_chunk(T *stage, const Body &body, const StateBlock &block, i64 first, i64 tokens) {
  using Shape = ChunkShape<Config>;
  const int rows = rows_of_chunk<Config>(first, tokens);
  copy_keys<Config>(stage, body, block, first, rows);
  copy_rows<Config, Shape::columns, Shape::value_pitch>(
      stage + 2 * Shape::key_tile,
      body.value_rows(block.entry, block.head) + first * body.value_stride() + block.column,
      body.value_stride(), rows, Config::value_depth - block.column);
}

// Where this lane points ldmatrix to: in a left operand, or a right one whose rows run along k; in one whose
// rows run along the columns of the result.
template <int Pitch>
DEVICE int row_place() {
  const int lane = (int)lane_id();
  return lane % 16 * Pitch + lane / 16 * 8;
}
template <int Pitch>
DEVICE int column_place() {
  const int lane = (int)lane_id();
  return (lane / 16 * 8 + lane % 8) * Pitch + lane / 8 % 2 * 8;
}

// Products with the same sums wait for each other: those with other sums go between.
template <int N, class T>
DEVICE void multiply_each(f32 (*const (&sums)[N])[4], const u32 (&left)[4], const u32 (&right)[N / 2][4], T) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const u32 half[2] = {right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]};
    mma_m16n8k16(*sums[n], left, half, T());
  }
}

// Two neighbouring fragments of sums, 16 x 16, as a left operand in two parts.
template <class T>
struct SplitOperand {
  u32 high[4], low[4];
  DEVICE SplitOperand(const f32 (&first)[4], const f32 (&second)[4]) {
    split_pair<T>(first[0], first[1], high[0], low[0]);
    split_pair<T>(first[2], first[3], high[1], low[1]);
    split_pair<T>(second[0], second[1], high[2], low[2]);
    split_pair<T>(second[2], second[3], high[3], low[3]);
  }
  // sums += this * right, where right is exact,
  template <int N>
  DEVICE void multiply(f32 (*const (&sums)[N])[4], const u32 (&right)[N / 2][4]) const {
    multiply_each(sums, high, right, T());
    multiply_each(sums, low, right, T());
  }
  // or has two parts itself.
  template <int N>
  DEVICE void multiply(f32 (*const (&sums)[N])[4], const u32 (&right)[N / 2][4],
                       const u32 (&rest)[N / 2][4]) const {
    multiply_each(sums, high, rest, T());
    multiply(sums, right);
  }
};

// A matrix over pairs of tokens, [later][earlier], in two parts.
template <class Config, class T>
struct TokenMatrix {
  using Shape = ChunkShape<Config>;
  T *high, *low;

  DEVICE void store_pair(int later, int earlier, f32 first, f32 second) const {
    u32 nearest, rest;
    split_pair<T>(first, second, nearest, rest);
    store(reinterpret_cast<u32 *>(high + later * Shape::pitch + earlier), nearest);
    store(reinterpret_cast<u32 *>(low + later * Shape::pitch + earlier), rest);
  }
  DEVICE void store_one(int later, int earlier, f32 value) const {
    const T nearest = from_f32<T>(value);
    high[later * Shape::pitch + earlier] = nearest;
    low[later * Shape::pitch + earlier] = from_f32<T>(value - to_f32(nearest));
  }
  // A block as a right operand; its rows are the columns of the sums.
  DEVICE void load_block(u32 (&right)[4], u32 (&rest)[4], int later, int earlier) const {
    const int place = 16 * (later * Shape::pitch + earlier) + column_place<Shape::pitch>();
    ldmatrix_x4(right, high + place);
    ldmatrix_x4(rest, low + place);
  }
};

template <class Config, class T>
struct ChunkMatrices {
  using Shape = ChunkShape<Config>;
  TokenMatrix<Config, T> read, solve; // M; -A, and on the diagonal the inverses of I + A
  f32 *scratch;                       // of the warp

  // Block (later, earlier) of M and -A.
  DEVICE void compute(const T *stage, const ChunkFactors<Config> &factors, int later, int earlier) const {
    const T *const keys = stage, *const queries = stage + Shape::key_tile;
    f32 of_keys[2][4] = {}, of_queries[2][4] = {};
#pragma unroll
    for (int k = 0; k < Shape::depth; k += 16) {
      u32 right[4], key[4], query[4];
      ldmatrix_x4(right, keys + 16 * earlier * Shape::key_pitch + k + column_place<Shape::key_pitch>());
      ldmatrix_x4(query, queries + 16 * later * Shape::key_pitch + k + row_place<Shape::key_pitch>());
      const u32 one[2] = {right[0], right[1]}, two[2] = {right[2], right[3]};
      mma_m16n8k16(of_queries[0], query, one, T());
      mma_m16n8k16(of_queries[1], query, two, T());
      if constexpr (is_corrected<Config>) {
        ldmatrix_x4(key, keys + 16 * later * Shape::key_pitch + k + row_place<Shape::key_pitch>());
        mma_m16n8k16(of_keys[0], key, one, T());
        mma_m16n8k16(of_keys[1], key, two, T());
      }
    }
    const int row = (int)lane_id() / 4, column = (int)lane_id() % 4 * 2, t = 16 * later + row,
              j = 16 * earlier + column;
    f32 between[2][2][2], beta[2] = {}; // by half of the rows, half of the columns
    decays_between(between, factors, t, j);
    if constexpr (is_corrected<Config>) {
      beta[0] = factors.beta(t);
      beta[1] = factors.beta(t + 8);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = t + 8 * half, first = j + 8 * n;
        f32 reads[2], adds[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const f32 factor = between[half][n][e];
          reads[e] = first + e <= token ? factor * of_queries[n][2 * half + e] : 0.f;
          if constexpr (is_corrected<Config>)
            adds[e] = first + e < token ? beta[half] * factor * of_keys[n][2 * half + e] : 0.f;
        }
        read.store_pair(token, first, reads[0], reads[1]);
        if constexpr (is_corrected<Config>) {
          if (later == earlier)
            store_vec(scratch + (row + 8 * half) * Shape::scratch_pitch + column + 8 * n,
                      Vec<f32, 2>{adds[0], adds[1]});
          else
            solve.store_pair(token, first, -adds[0], -adds[1]);
        }
      }
  }
  static DEVICE void decays_between(f32 (&between)[2][2][2], const ChunkFactors<Config> &factors, int t,
                                    int j) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      Vec<f32, 2> sums = Vec<f32, 2>(), rests = Vec<f32, 2>();
      if constexpr (Config::decay_width > 0) {
        sums = pair_at(factors.sum(j + 8 * n));
        rests = pair_at(factors.rest(j + 8 * n));
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if constexpr (Config::decay_width > 0)
            between[half][n][e] =
                exp2_near((factors.sum(t + 8 * half) - sums[e]) + (factors.rest(t + 8 * half) - rests[e]));
          else
            between[half][n][e] = 1.f;
    }
  }
  // The inverse of I + the block in scratch: a lane has a column.
  DEVICE void invert(int block) const {
    const int column = (int)lane_id() % 16;
    f32 inverse[16];
    warp_barrier();
#pragma unroll
    for (int row = 0; row < 16; ++row) {
      f32 sums[4] = {};
#pragma unroll
      for (int i = 0; i < row; i += 4) {
        const Vec<f32, 4> entries = load_vec<f32, 4>(scratch + row * Shape::scratch_pitch + i);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (i + e < row)
            sums[e] = fma_(entries[e], inverse[i + e], sums[e]);
      }
      inverse[row] = row == column ? 1.f : -((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
    if (lane_id() < 16)
#pragma unroll
      for (int row = 0; row < 16; ++row)
        solve.store_one(16 * block + row, 16 * block + column, inverse[row]);
  }
  // The first warps have a block of the diagonal, the others those below.
  DEVICE void compute_all(const T *stage, const ChunkFactors<Config> &factors) const {
    static_assert(Shape::warps == 8,
                  "warps that have a block of the diagonal, and warps for the blocks below");
    const int warp = (int)thread_x() / 32, below = warp - Shape::blocks;
    if (below < 0) {
      compute(stage, factors, warp, warp);
      if constexpr (is_corrected<Config>)
        invert(warp);
    } else {
      // (1, 0), (2, 0), (3, 0), (3, 1); (2, 1), (3, 2)
      compute(stage, factors, below < 3 ? below + 1 : 3, below == 3);
      if (below < 2)
        compute(stage, factors, 2 + below, 1 + below);
    }
  }
};
