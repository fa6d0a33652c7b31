#pragma once
// Linear attention: what the templates share. For each head, a state of `depth` rows and `value_depth`
// columns; a token multiplies it by its decay, adds its key times an update, and reads it by its queries.
// Columns are independent of each other, so that blocks share out the columns of a head.
//
// Every template takes a Config and a Body. In a Config, at compile time:
//   Query, Key, Value, State, Decay, Beta   types of the elements; void where there is no decay or beta
//   depth, value_depth   head size of queries and keys; of values and results
//   queries              heads of queries that read the state of one head
//   decay_width          entries of a token's decay: 0 (none), 1 or depth
//   scale                what a result is multiplied with
// and what each template names. A Body says where tensors lie:
//   i64 heads(), tokens()
//   const Query *query_rows(entry, head), i64 query_stride(), query_column_stride(); `head` is the result's
//   the same of key, value, decay, beta (no column stride) and state; `head` is the state's
//   void store(entry, head, token, column, const Vec<f32, N> &)       N neighbouring columns of a result
//   void store_state(entry, head, row, column, const Vec<f32, N> &)   and of the new state, which may lie
//                                                                     where the old one does: a thread
//                                                                     stores what it has loaded itself

#include "math.cuh"
#include "reduce.cuh"

template <class Config>
constexpr bool is_corrected = !same_type<typename Config::Beta, void>;

// The columns of one head that a block has.
struct StateBlock {
  i64 entry, head; // entry: of the batch
  int column;      // the first one
};
// 32-bit divisions: 64-bit ones are calls.
template <class Config, class Body>
DEVICE StateBlock state_block(const Body &body, int columns) {
  const u32 blocks = (u32)((Config::value_depth + columns - 1) / columns), heads = (u32)body.heads();
  const u32 head = block_x() / blocks;
  return {(i64)(head / heads), (i64)(head % heads), (int)(block_x() % blocks) * columns};
}

// N neighbouring elements of a row as f32: one access, or one each at a stride.
template <int N, bool Vector, class T>
DEVICE Vec<f32, N> load_columns(const T *from, i64 stride) {
  Vec<f32, N> values;
  if constexpr (Vector) {
    const Vec<T, N> loaded = load_early_vec<T, N>(from);
#pragma unroll
    for (int i = 0; i < N; ++i)
      values[i] = element_f32(loaded, i);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i)
      values[i] = to_f32(load_early(from + i * stride));
  }
  return values;
}
