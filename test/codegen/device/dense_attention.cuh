#pragma once
// A Body of the attention templates over dense tensors [batch, heads, positions, depth], for their tests and
// benchmarks.

#include "attention_rows.cuh"

// M: the type of a mask [batch, queries, keys], or void.
template <class T, int Depth, int ValueDepth, class M = void>
struct DenseAttention {
  const T *q, *k, *v;
  const M *m;
  T *y;
  i64 batches, all_kv_heads, heads_of_group, queries, keys;
  static constexpr f32 scale = 0.125f;

  DEVICE i64 batch() const { return batches; }
  DEVICE i64 kv_heads() const { return all_kv_heads; }
  DEVICE i64 group() const { return heads_of_group; }
  DEVICE i64 query_count() const { return queries; }
  DEVICE i64 key_count() const { return keys; }
  DEVICE i64 place(i64 entry, i64 head, i64 query) const {
    return (entry * all_kv_heads * heads_of_group + head) * queries + query;
  }
  DEVICE const T *query(i64 entry, i64 head, i64 query, int column) const {
    return q + place(entry, head, query) * Depth + column;
  }
  DEVICE const T *key_rows(i64 entry, i64 kv_head) const {
    return k + (entry * all_kv_heads + kv_head) * keys * Depth;
  }
  DEVICE const T *value_rows(i64 entry, i64 kv_head) const {
    return v + (entry * all_kv_heads + kv_head) * keys * ValueDepth;
  }
  DEVICE i64 key_stride() const { return Depth; }
  DEVICE i64 key_column_stride() const { return 1; }
  DEVICE i64 value_stride() const { return ValueDepth; }
  DEVICE i64 value_column_stride() const { return 1; }
  DEVICE const M *mask_row(i64 entry, i64, i64 query) const { return m + (entry * queries + query) * keys; }
  DEVICE const M *mask(const M *row, i64 key) const { return row + key; }
  template <int N>
  DEVICE void score(f32 (&s)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i)
      s[i] = scale * s[i];
  }
  template <int N, class Value>
  DEVICE void score(f32 (&s)[N], const Value (&mask)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i)
      s[i] = same_type<Value, bool> ? (mask[i] ? scale * s[i] : -inf_f32()) : scale * s[i] + (f32)mask[i];
  }
  template <int N>
  DEVICE void store(i64 entry, i64 head, i64 query, int column, const Vec<f32, N> &values) const {
    store_vec(y + place(entry, head, query) * ValueDepth + column, vec_from_f32<T>(values));
  }
};
