#pragma once
// Linear attention, one token after the other: for a few tokens, which memory bandwidth bounds, and for what
// the chunked template does not take. A block has all rows of some columns of a state, in registers: lanes of
// one group have neighbouring columns of a row, as many as a line of memory, and the groups of all warps take
// rows in turn. Keys, queries and decays of some tokens wait in shared memory, as do the warps' sums. A
// Config also has
//   warps
//   row_lanes, vector          lanes of a group, and columns of each
//   stage_tokens               that wait at a time
//   key_vector, query_vector   elements that are loaded at a time
//   state_vectors, value_vectors   whether a lane's columns are one access
//   early_state, early_tokens      whether the state, and the first tokens, can be loaded before the
//                                  kernel before has ended

#include "linear_attention.cuh"

template <class Config>
struct RecurrentShape {
  static constexpr int threads = 32 * Config::warps, groups = threads / Config::row_lanes;
  static constexpr int rows = (Config::depth + groups - 1) / groups; // of a lane
  static constexpr int columns = Config::row_lanes * Config::vector;
  static constexpr bool whole = Config::depth % groups == 0;
  // Of a token in shared memory: its key, its queries, the factors of its decay, beta.
  static constexpr int queries = Config::depth, decay = queries + Config::queries * Config::depth;
  static constexpr int beta = decay + Config::decay_width, pitch = beta + 1;
  // Of a warp's sums: its key and its queries times the state, its queries times its key.
  static constexpr int scores = (1 + Config::queries) * columns, sums = scores + Config::queries;
};

// Rows of neighbouring tokens as f32, or their exponentials. FirstWarp takes the first of them: where tokens
// are few, each operand is another warp's, which waits for it alone.
template <int Width, int Vector, int Threads, int Pitch, int FirstWarp, bool Exponential, class T>
DEVICE void stage_rows(f32 *to, const T *from, i64 stride, i64 column_stride, int tokens) {
  constexpr int per_row = Width / Vector, shift = Threads - 32 * FirstWarp % Threads;
  for (int i = ((int)thread_x() + shift) % Threads; i < tokens * per_row; i += Threads) {
    const int row = i / per_row, column = i % per_row * Vector;
    const Vec<f32, Vector> values =
        load_columns<Vector, (Vector > 1)>(from + row * stride + column * column_stride, column_stride);
#pragma unroll
    for (int e = 0; e < Vector; ++e)
      to[row * Pitch + column + e] = Exponential ? exp_(values[e]) : values[e];
  }
}
template <class Config, class Body>
DEVICE void stage_tokens(f32 *staged, const Body &body, const StateBlock &block, i64 first, int tokens) {
  using Shape = RecurrentShape<Config>;
  constexpr int threads = Shape::threads, pitch = Shape::pitch;
  stage_rows<Config::depth, Config::key_vector, threads, pitch, 0, false>(
      staged, body.key_rows(block.entry, block.head) + first * body.key_stride(), body.key_stride(),
      body.key_column_stride(), tokens);
#pragma unroll 1
  for (int q = 0; q < Config::queries; ++q)
    stage_rows<Config::depth, Config::query_vector, threads, pitch, 1, false>(
        staged + Shape::queries + q * Config::depth,
        body.query_rows(block.entry, block.head * Config::queries + q) + first * body.query_stride(),
        body.query_stride(), body.query_column_stride(), tokens);
  if constexpr (Config::decay_width > 0)
    stage_rows<Config::decay_width, 1, threads, pitch, 2, true>(
        staged + Shape::decay, body.decay_rows(block.entry, block.head) + first * body.decay_stride(),
        body.decay_stride(), body.decay_column_stride(), tokens);
  if constexpr (is_corrected<Config>)
    stage_rows<1, 1, threads, pitch, 3, false>(
        staged + Shape::beta, body.beta_rows(block.entry, block.head) + first * body.beta_stride(),
        body.beta_stride(), 0, tokens);
}

// A lane's part of a state: rows group, group + groups ... of its columns.
template <class Config>
struct StateRows {
  using Shape = RecurrentShape<Config>;
  static constexpr int vector = Config::vector;
  f32 at[Shape::rows][vector];
  int group;

  DEVICE int row(int i) const { return group + Shape::groups * i; }
  DEVICE bool has(int i) const { return Shape::whole || row(i) < Config::depth; }
  DEVICE f32 entry(const f32 *of_rows, int i) const { return has(i) ? of_rows[row(i)] : 0.f; }
  template <class Body>
  DEVICE void load(const Body &body, const StateBlock &block, int column, bool inside) {
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i) {
      Vec<f32, vector> values = Vec<f32, vector>();
      if (inside && has(i))
        values = load_columns<vector, Config::state_vectors>(body.state_rows(block.entry, block.head) +
                                                                 row(i) * body.state_stride() +
                                                                 column * body.state_column_stride(),
                                                             body.state_column_stride());
#pragma unroll
      for (int e = 0; e < vector; ++e)
        at[i][e] = values[e];
    }
  }
  template <class Body>
  DEVICE void store(const Body &body, const StateBlock &block, int column) const {
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i) {
      Vec<f32, vector> values;
#pragma unroll
      for (int e = 0; e < vector; ++e)
        values[e] = at[i][e];
      if (has(i))
        body.store_state(block.entry, block.head, row(i), column, values);
    }
  }

  DEVICE void decay(const f32 *factors) {
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i) {
      const f32 factor = Config::decay_width == 1 ? factors[0] : entry(factors, i);
#pragma unroll
      for (int e = 0; e < vector; ++e)
        at[i][e] = at[i][e] * factor;
    }
  }
  DEVICE void add(const f32 *key, const f32 (&update)[vector]) {
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i) {
      const f32 factor = entry(key, i);
#pragma unroll
      for (int e = 0; e < vector; ++e)
        at[i][e] = fma_(factor, update[e], at[i][e]);
    }
  }
  // The warp's part of row_vector * state, to the place of the lane's columns.
  DEVICE void multiply(f32 *to, const f32 *row_vector) const {
    f32 sums[vector] = {};
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i) {
      const f32 factor = entry(row_vector, i);
#pragma unroll
      for (int e = 0; e < vector; ++e)
        sums[e] = fma_(factor, at[i][e], sums[e]);
    }
#pragma unroll
    for (int e = 0; e < vector; ++e) {
      const f32 sum = over_groups(sums[e]);
      if (lane_id() < Config::row_lanes)
        to[e] = sum;
    }
  }
  // The same of the product of two rows.
  DEVICE void multiply(f32 *to, const f32 *left, const f32 *right) const {
    f32 product = 0.f;
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i)
      product = fma_(entry(left, i), entry(right, i), product);
    const f32 sum = over_groups(product);
    if (lane_id() == 0)
      *to = sum;
  }

private:
  static DEVICE f32 over_groups(f32 value) {
#pragma unroll
    for (int mask = Config::row_lanes; mask < 32; mask *= 2) {
      const f32 other = shuffle_xor(value, mask);
      value = value + other;
    }
    return value;
  }
};

// Of all warps.
template <class Config>
DEVICE f32 whole_sum(const f32 *sums, int place) {
  f32 sum = sums[place];
#pragma unroll
  for (int warp = 1; warp < Config::warps; ++warp)
    sum = sum + sums[warp * RecurrentShape<Config>::sums + place];
  return sum;
}

// One token: `update` becomes what its key adds. With beta, the old state is multiplied by key and queries at
// once, since q (S + k u) = q S + (q k) u. `sums`: of the warps, which the token after the next uses again.
template <class Config, class Body>
DEVICE void recur(StateRows<Config> &state, const Body &body, const StateBlock &block, const f32 *token,
                  f32 *sums, f32 (&update)[Config::vector], int column, bool inside, i64 place) {
  using Shape = RecurrentShape<Config>;
  constexpr int vector = Config::vector;
  const int warp = (int)thread_x() / 32, mine = (int)lane_id() % Config::row_lanes * vector;
  f32 *const own = sums + warp * Shape::sums;
  if constexpr (Config::decay_width > 0)
    state.decay(token + Shape::decay);
  if constexpr (is_corrected<Config>)
    state.multiply(own + mine, token);
  else
    state.add(token, update);
#pragma unroll 1
  for (int q = 0; q < Config::queries; ++q) {
    const f32 *const query = token + Shape::queries + q * Config::depth;
    state.multiply(own + (1 + q) * Shape::columns + mine, query);
    if constexpr (is_corrected<Config>)
      state.multiply(own + Shape::scores + q, query, token);
  }
  barrier();
  if constexpr (is_corrected<Config>) {
#pragma unroll
    for (int e = 0; e < vector; ++e)
      update[e] = (update[e] - whole_sum<Config>(sums, mine + e)) * token[Shape::beta];
    state.add(token, update);
  }
#pragma unroll 1
  for (int q = warp; q < Config::queries; q += Config::warps) {
    Vec<f32, vector> result;
#pragma unroll
    for (int e = 0; e < vector; ++e) {
      f32 sum = whole_sum<Config>(sums, (1 + q) * Shape::columns + mine + e);
      if constexpr (is_corrected<Config>)
        sum = fma_(whole_sum<Config>(sums, Shape::scores + q), update[e], sum);
      result[e] = sum * Config::scale;
    }
    if (lane_id() < Config::row_lanes && inside)
      body.store(block.entry, block.head * Config::queries + q, place, column, result);
  }
}

template <class Config, class Body>
DEVICE void linear_attention_recurrent(const Body &body) {
  using Shape = RecurrentShape<Config>;
  constexpr int vector = Config::vector, stage = Config::stage_tokens;
  f32 *const staged = reinterpret_cast<f32 *>(dynamic_shared()), *const sums = staged + stage * Shape::pitch;
  const StateBlock block = state_block<Config>(body, Shape::columns);
  const int column = block.column + (int)lane_id() % Config::row_lanes * vector;
  const bool inside = column < Config::value_depth;
  const i64 tokens = body.tokens(), value_columns = body.value_column_stride();
  const auto *const values = body.value_rows(block.entry, block.head) + column * value_columns;
  StateRows<Config> state;
  Vec<f32, vector> next = Vec<f32, vector>();
  state.group = (int)thread_x() / Config::row_lanes;
  if constexpr (Config::early_state)
    state.load(body, block, column, inside);
  if constexpr (!Config::early_tokens)
    pdl_wait();
  if (inside && tokens > 0)
    next = load_columns<vector, Config::value_vectors>(values, value_columns);
  stage_tokens<Config>(staged, body, block, 0, tokens < stage ? (int)tokens : stage);
  if constexpr (Config::early_tokens)
    pdl_wait();
  pdl_launch_dependents();
  if constexpr (!Config::early_state)
    state.load(body, block, column, inside);
#pragma unroll 1
  for (i64 first = 0; first < tokens; first += stage) {
    const int count = tokens - first < stage ? (int)(tokens - first) : stage;
    if (first > 0) {
      barrier();
      stage_tokens<Config>(staged, body, block, first, count);
    }
    barrier();
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      const i64 place = first + t;
      f32 update[vector];
#pragma unroll
      for (int e = 0; e < vector; ++e)
        update[e] = next[e];
      if (inside && place + 1 < tokens)
        next = load_columns<vector, Config::value_vectors>(values + (place + 1) * body.value_stride(),
                                                           value_columns);
      recur(state, body, block, staged + t * Shape::pitch, sums + (t & 1) * Config::warps * Shape::sums,
            update, column, inside, place);
    }
  }
  if (inside)
    state.store(body, block, column);
}
