#pragma once

#include "bytes.cuh"
#include "machine.cuh"

// Rows that begin anywhere, in vectors that begin where memory is aligned.

// Elements column ... column + N - 1 of a row of `width` elements, fewer than 2^31, of which those at its
// ends may lie outside. row + column is a multiple of N elements in memory: rows of odd lengths are cut
// there, not where they begin.
DEVICE bool is_inside(i64 column, i64 width) { return (u32)column < (u32)width; }
template <class T, int N, bool Early> DEVICE Vec<T, N> load_aligned_vec(const T *from) {
  return Early ? load_early_vec<T, N>(from) : load_vec<T, N>(from);
}
// The first `count` of N elements, fewer than all, from where N are aligned; zeros behind them. In pieces of
// half as many, a quarter and so on: element by element a row took half as many registers again.
template <class T, int N, bool Early> DEVICE Vec<T, N> load_first_of_vec(const T *from, u32 count) {
  Vec<T, N> values = Vec<T, N>();
  if constexpr (N > 1) {
    constexpr int half = N / 2;
    const bool has_half = count >= (u32)half;
    Vec<T, half> low = Vec<T, half>(), high = Vec<T, half>();
    if (has_half)
      low = load_aligned_vec<T, half, Early>(from);
    const Vec<T, half> rest =
        load_first_of_vec<T, half, Early>(from + (has_half ? half : 0), has_half ? count - half : count);
    (has_half ? high : low) = rest;
    copy_bytes(&values, &low, sizeof low);
    copy_bytes(reinterpret_cast<u8 *>(&values) + sizeof low, &high, sizeof high);
  }
  return values;
}
// Before the row, the end of the row before it; behind it, zeros: the last row may end with its buffer.
template <class T, int N, bool Early> DEVICE Vec<T, N> load_edge_vec(const T *row, i64 column, i64 width) {
  if (column + N <= width)
    return load_aligned_vec<T, N, Early>(row + column);
  return column < width ? load_first_of_vec<T, N, Early>(row + column, (u32)(width - column)) : Vec<T, N>();
}
// The same from any column of a row that begins at a multiple, such as the weights of all rows: out of two
// aligned vectors.
template <class T, int N, bool Early> DEVICE Vec<T, N> load_moved_vec(const T *row, i64 column, i64 width) {
  constexpr int words = N * (int)sizeof(T) / 4;
  const u32 head = (u32)-column % (u32)N, bytes = ((u32)N - head) * (u32)sizeof(T);
  const i64 next = column + head;
  Vec<T, N> low = Vec<T, N>(), high = load_edge_vec<T, N, Early>(row, next, width);
  if (head != 0 && next >= N)
    low = load_edge_vec<T, N, Early>(row, next - N, width);
  u32 both[2 * words], moved[words];
  copy_bytes(both, &low, 4 * words);
  copy_bytes(both + words, &high, 4 * words);
#pragma unroll
  for (int step = words; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i + step < 2 * words && i < words + step; ++i)
      both[i] = bytes / 4u & (u32)step ? both[i + step] : both[i];
#pragma unroll
  for (int i = 0; i < words; ++i)
    moved[i] = permute_bytes(both[i], both[i + 1], 0x3210u + 0x1111u * (bytes % 4u));
  Vec<T, N> values;
  copy_bytes(&values, moved, 4 * words);
  return values;
}
// Stores of the elements inside.
template <class T, int N> DEVICE void store_edge_vec(T *row, i64 column, i64 width, const Vec<T, N> &values) {
  if (column >= 0 && column + N <= width) {
    store_vec(row + column, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (is_inside(column + i, width))
      store(row + column + i, values[i]);
}
