#pragma once
// Linear attention, one token after the other: for a few tokens, which memory bandwidth bounds, and for what the chunked
// template does not take. A warp has all rows of some columns of a state, in its registers: lanes of one group have
// neighbouring columns of a row, and groups take rows in turn. Keys, queries and decays of some tokens wait in shared
// memory. A Config also has
//   warps
//   row_lanes, vector          lanes of a group, and columns of each
//   stage_tokens               that wait at a time
//   key_vector, query_vector   elements that are loaded at a time
//   state_vectors, value_vectors, early_state   whether a lane's columns are one access; whether the state can be loaded
//                                               before the kernel before has ended

#include "linear_attention.cuh"

template <class Config>
struct RecurrentShape {
  static constexpr int threads = 32 * Config::warps, groups = 32 / Config::row_lanes;
  static constexpr int rows = (Config::depth + groups - 1) / groups; // of a lane
  static constexpr int columns = Config::warps * Config::row_lanes * Config::vector;
  static constexpr bool whole = Config::depth % groups == 0;
  // Of a token in shared memory: its key, its queries, the factors of its decay, beta.
  static constexpr int queries = Config::depth, decay = queries + Config::queries * Config::depth;
  static constexpr int beta = decay + Config::decay_width, pitch = beta + 1;
};

// Rows of neighbouring tokens as f32, or their exponentials.
template <int Width, int Vector, int Threads, int Pitch, bool Exponential, class T>
DEVICE void stage_rows(f32 *to, const T *from, i64 stride, i64 column_stride, int tokens) {
  constexpr int per_row = Width / Vector;
  for (int i = (int)thread_x(); i < tokens * per_row; i += Threads) {
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
  stage_rows<Config::depth, Config::key_vector, threads, pitch, false>(
      staged, body.key_rows(block.entry, block.head) + first * body.key_stride(), body.key_stride(),
      body.key_column_stride(), tokens);
#pragma unroll 1
  for (int q = 0; q < Config::queries; ++q)
    stage_rows<Config::depth, Config::query_vector, threads, pitch, false>(
        staged + Shape::queries + q * Config::depth,
        body.query_rows(block.entry, block.head * Config::queries + q) + first * body.query_stride(), body.query_stride(),
        body.query_column_stride(), tokens);
  if constexpr (Config::decay_width > 0)
    stage_rows<Config::decay_width, 1, threads, pitch, true>(
        staged + Shape::decay, body.decay_rows(block.entry, block.head) + first * body.decay_stride(), body.decay_stride(),
        body.decay_column_stride(), tokens);
  if constexpr (is_corrected<Config>)
    stage_rows<1, 1, threads, pitch, false>(staged + Shape::beta,
                                            body.beta_rows(block.entry, block.head) + first * body.beta_stride(),
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
    for (int i = 0; i < Shape::rows; ++i)
#pragma unroll
      for (int e = 0; e < vector; ++e)
        at[i][e] = at[i][e] * factors[Config::decay_width == 1 ? 0 : has(i) ? row(i) : 0];
  }
  DEVICE void add(const f32 *key, const f32 (&update)[vector]) {
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i)
#pragma unroll
      for (int e = 0; e < vector; ++e)
        at[i][e] = fma_(has(i) ? key[row(i)] : 0.f, update[e], at[i][e]);
  }
  // row_vector * state, in every lane.
  DEVICE void multiply(f32 (&sums)[vector], const f32 *row_vector) const {
#pragma unroll
    for (int e = 0; e < vector; ++e)
      sums[e] = 0.f;
#pragma unroll
    for (int i = 0; i < Shape::rows; ++i)
#pragma unroll
      for (int e = 0; e < vector; ++e)
        sums[e] = fma_(has(i) ? row_vector[row(i)] : 0.f, at[i][e], sums[e]);
#pragma unroll
    for (int mask = Config::row_lanes; mask < 32; mask *= 2)
#pragma unroll
      for (int e = 0; e < vector; ++e) {
        const f32 other = shuffle_xor(sums[e], mask);
        sums[e] = sums[e] + other;
      }
  }
};

template <class Config, class Body>
DEVICE void linear_attention_recurrent(const Body &body) {
  using Shape = RecurrentShape<Config>;
  constexpr int vector = Config::vector;
  f32 *const staged = reinterpret_cast<f32 *>(dynamic_shared());
  const StateBlock block = state_block<Config>(body, Shape::columns);
  const int lane = (int)lane_id(), column = block.column + ((int)thread_x() / 32 * Config::row_lanes + lane % Config::row_lanes) * vector;
  const bool inside = column < Config::value_depth;
  StateRows<Config> state;
  state.group = lane / Config::row_lanes;
  if constexpr (Config::early_state)
    state.load(body, block, column, inside);
  pdl_wait();
  pdl_launch_dependents();
  if constexpr (!Config::early_state)
    state.load(body, block, column, inside);
  const i64 tokens = body.tokens();
  const auto *const values = body.value_rows(block.entry, block.head) + column * body.value_column_stride();
  Vec<f32, vector> next = Vec<f32, vector>();
  if (inside && tokens > 0)
    next = load_columns<vector, Config::value_vectors>(values, body.value_column_stride());
#pragma unroll 1
  for (i64 first = 0; first < tokens; first += Config::stage_tokens) {
    const int count = tokens - first < Config::stage_tokens ? (int)(tokens - first) : Config::stage_tokens;
    if (first > 0)
      barrier();
    stage_tokens<Config>(staged, body, block, first, count);
    barrier();
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      const f32 *const token = staged + t * Shape::pitch;
      const i64 place = first + t;
      f32 update[vector];
#pragma unroll
      for (int e = 0; e < vector; ++e)
        update[e] = next[e];
      if (inside && place + 1 < tokens)
        next = load_columns<vector, Config::value_vectors>(values + (place + 1) * body.value_stride(), body.value_column_stride());
      if constexpr (Config::decay_width > 0)
        state.decay(token + Shape::decay);
      if constexpr (is_corrected<Config>) {
        f32 known[vector];
        state.multiply(known, token);
#pragma unroll
        for (int e = 0; e < vector; ++e)
          update[e] = (update[e] - known[e]) * token[Shape::beta];
      }
      state.add(token, update);
#pragma unroll 1
      for (int q = 0; q < Config::queries; ++q) {
        f32 sums[vector];
        state.multiply(sums, token + Shape::queries + q * Config::depth);
        Vec<f32, vector> result;
#pragma unroll
        for (int e = 0; e < vector; ++e)
          result[e] = sums[e] * Config::scale;
        if (state.group == 0 && inside)
          body.store(block.entry, block.head * Config::queries + q, place, column, result);
      }
    }
  }
  if (inside)
    state.store(body, block, column);
}
