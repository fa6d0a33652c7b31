#pragma once
// The sum over the slots of each row: what the experts of a row made of it, in the order of the slots, then
// scalar ops.

#include "gemm.cuh"

/// `Config`: vector (neighbouring columns that a thread adds up), unroll (slots that are on their way),
/// threads. `from` is [rows, slots, columns].
template <class Config, class T, class Epilogue>
DEVICE void expert_sum(const T *from, i64 rows, i64 slots, i64 columns, const Epilogue &epilogue) {
  constexpr int vector = Config::vector;
  const i64 vectors = columns / vector, at = (i64)block_x() * Config::threads + (i64)thread_x();
  pdl_wait();
  pdl_launch_dependents();
  if (at >= rows * vectors)
    return;
  const i64 row = at / vectors, column = at % vectors * vector;
  const T *line = from + (row * slots * columns + column);
  Vec<f32, vector> sums[1];
#pragma unroll
  for (int i = 0; i < vector; ++i)
    sums[0][i] = 0.f;
#pragma unroll Config::unroll
  for (i64 slot = 0; slot < slots; ++slot) {
    const Vec<T, vector> values = load_vec<T, vector>(line + slot * columns);
#pragma unroll
    for (int i = 0; i < vector; ++i)
      sums[0][i] += exact_value(values[i]);
  }
  epilogue(Matmul<0>(), row, column, sums, StoreAt<vector>{row * columns + column});
}
