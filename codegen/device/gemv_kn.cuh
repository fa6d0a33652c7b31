#pragma once
// Few rows of A times a B that lies as [k][n]: a block computes a strip of C's columns. Its threads share out
// k, each reading 16-byte vectors of several lines of B at a time, and add up their accumulators in the end.

#include "gemm.cuh"
#include "reduce.cuh"

/// `Config`: rows (the most that A has), least_rows (the fewest), vector (columns that a thread reads at
/// once), steps (neighbours along k that it reads at once), columns (of a strip), threads, matmuls, combined,
/// batched. With a prologue: depth, the constant k.
template <class Config, class Shape, class A, class B, class Prologue, class Epilogue>
DEVICE void gemv_kn(const Shape &shape, const A &a, const B &b, const Prologue &prologue,
                    const Epilogue &epilogue) {
  using ElementA = typename A::element;
  using ElementB = typename B::element;
  constexpr int rows = Config::rows, width = Config::vector, steps = Config::steps, columns = Config::columns;
  constexpr int threads = Config::threads, warps = threads / 32, sums = accumulators<Config>;
  constexpr int slices = 32 * width / columns; // of k, in a warp
  SHARED(f32, partial, sums * warps * rows * columns);
  const int thread = (int)thread_x(), lane = thread % 32, warp = thread / 32;
  const int slice = warp * slices + lane % slices, mine = lane / slices * width;
  const BlockPlace place = place_in_columns<Config, columns>(shape);
  // Columns beyond the last are not stored.
  const i64 n = shape.n(place.matmul), column = place.column + mine < n ? place.column + mine : 0;
  auto matrixA = a.matrix(0, place.z);
  ElementA *normalised = nullptr;
  if constexpr (has_prologue<Prologue>) {
    SHARED(ElementA, storage, rows * Config::depth);
    matrixA = normalised = storage;
  }
  decltype(b.matrix(0, 0)) matrixB[sums];
#pragma unroll
  for (int s = 0; s < sums; ++s)
    matrixB[s] = b.matrix(place.matmul + s, place.z);
  // Rows beyond the last are the last one again; what comes of them is not stored.
  i64 line[rows];
  decltype(a.matrix(0, 0)) row[rows];
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    line[i] = i < Config::least_rows || i < shape.m() ? i : shape.m() - 1;
    row[i] = matrixA + a.row(0, line[i]);
  }
  f32 sum[sums][rows][width] = {};
  if constexpr (has_prologue<Prologue>)
    prologue(normalised);
  else
    pdl_wait();
  const auto accumulate = [&](i64 k) {
    Vec<ElementB, width> right[sums][steps];
    Vec<ElementA, steps> left[rows];
#pragma unroll
    for (int s = 0; s < sums; ++s)
#pragma unroll
      for (int d = 0; d < steps; ++d)
        right[s][d] = load_vec<ElementB, width>(matrixB[s] + (b.depth(place.matmul + s, k + d) + column));
#pragma unroll
    for (int i = 0; i < rows; ++i)
      left[i] = load_vec<ElementA, steps>(row[i] + a.depth(0, k));
#pragma unroll
    for (int d = 0; d < steps; ++d)
#pragma unroll
      for (int e = 0; e < width; ++e)
#pragma unroll
        for (int s = 0; s < sums; ++s) {
          const f32 factor = decoder_along_k<steps>(b, place.matmul + s, column + e, k)(d, right[s][d][e]);
#pragma unroll
          for (int i = 0; i < rows; ++i)
            sum[s][i][e] =
                fma_(decoder_along_k<steps>(a, 0, line[i], k)(d, left[i][d]), factor, sum[s][i][e]);
        }
  };
  constexpr int stride = warps * slices * steps;
  if constexpr (steps == 1) {
#pragma unroll 4
    for (i64 k = slice; k < shape.k(); k += stride)
      accumulate(k);
  } else {
    for (i64 k = slice * steps; k < shape.k(); k += stride)
      accumulate(k);
  }
  // Not before: blocks of the next kernel, waiting, would take the place of this one's that still have to
  // start.
  pdl_launch_dependents();
  // A warp's slices in registers, the warps' in shared memory.
#pragma unroll
  for (int i = 0; i < rows; ++i)
#pragma unroll
    for (int e = 0; e < width; ++e)
#pragma unroll
      for (int s = 0; s < sums; ++s) {
        const f32 part = lanes_sum<slices>(sum[s][i][e]);
        if (lane % slices == 0)
          partial[((s * warps + warp) * rows + i) * columns + mine + e] = part;
      }
  barrier();
  for (int i = thread; i < rows * columns; i += threads) {
    const i64 m = i / columns, n = place.column + i % columns;
    Vec<f32, 1> totals[sums];
#pragma unroll
    for (int s = 0; s < sums; ++s) {
      f32 total = 0.f;
#pragma unroll
      for (int w = 0; w < warps; ++w)
        total += partial[(s * warps + w) * rows * columns + i];
      totals[s][0] = total;
    }
    if ((Config::least_rows == rows || m < shape.m()) && n < shape.n(place.matmul))
      finish<Config>(epilogue, place, shape, m, n, totals);
  }
}
