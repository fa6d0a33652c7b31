#pragma once
// Few rows of A times a B whose rows (the columns of C) are contiguous along k: each warp computes one column
// of C and reads its row of B once, 16 bytes a lane at a time.

#include "gemm.cuh"
#include "reduce.cuh"

/// `Config`: rows (the most that A has), least_rows (the fewest), vector (elements that a lane reads at once
/// along k, of A and B), unroll (steps along k that are on their way), matmuls, combined, batched. With a
/// prologue: depth, the constant k.
struct Gemv {
  static constexpr int threads = 128, warps = threads / 32;
};

template <class Config, class Shape, class A, class B, class Prologue, class Epilogue>
DEVICE void gemv(const Shape &shape, const A &a, const B &b, const Prologue &prologue,
                 const Epilogue &epilogue) {
  using ElementA = typename A::element;
  using ElementB = typename B::element;
  constexpr int rows = Config::rows, length = Config::vector, sums = accumulators<Config>,
                unroll = Config::unroll;
  const i64 lane = lane_id();
  const BlockPlace place = place_in_columns<Config, Gemv::warps>(shape);
  const i64 wanted = place.column + thread_x() / 32u, width = shape.n(place.matmul);
  const i64 n = wanted < width ? wanted : width - 1;
  decltype(b.matrix(0, 0)) column[sums];
#pragma unroll
  for (int s = 0; s < sums; ++s)
    column[s] = b.matrix(place.matmul + s, place.z) + b.row(place.matmul + s, n);
  auto matrixA = a.matrix(0, place.z);
  ElementA *normalised = nullptr;
  if constexpr (has_prologue<Prologue>) {
    SHARED(ElementA, storage, rows * Config::depth);
    matrixA = normalised = storage;
  }
  // Rows beyond the last are the last one again; what comes of them is not stored.
  i64 line[rows];
  decltype(a.matrix(0, 0)) row[rows];
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    line[i] = i < Config::least_rows || i < shape.m() ? i : shape.m() - 1;
    row[i] = matrixA + a.row(0, line[i]);
  }
  f32 sum[sums][rows];
#pragma unroll
  for (int s = 0; s < sums; ++s)
#pragma unroll
    for (int i = 0; i < rows; ++i)
      sum[s][i] = 0.f;
  if constexpr (has_prologue<Prologue>)
    prologue(normalised);
  else
    pdl_wait();
  pdl_launch_dependents();
#pragma unroll unroll
  for (i64 k = lane * length; k < shape.k(); k += 32 * length) {
    Vec<ElementB, length> right[sums];
    Vec<ElementA, length> left[rows];
#pragma unroll
    for (int s = 0; s < sums; ++s)
      right[s] = load_vec<ElementB, length>(column[s] + b.depth(place.matmul + s, k));
#pragma unroll
    for (int i = 0; i < rows; ++i)
      left[i] = load_vec<ElementA, length>(row[i] + a.depth(0, k));
#pragma unroll
    for (int e = 0; e < length; ++e)
#pragma unroll
      for (int s = 0; s < sums; ++s) {
        const f32 factor = decoder_along_k<length>(b, place.matmul + s, n, k)(e, right[s][e]);
#pragma unroll
        for (int i = 0; i < rows; ++i)
          sum[s][i] = fma_(decoder_along_k<length>(a, 0, line[i], k)(e, left[i][e]), factor, sum[s][i]);
      }
  }
#pragma unroll
  for (int i = 0; i < rows; ++i)
#pragma unroll
    for (int s = 0; s < sums; ++s)
      sum[s][i] = warp_sum(sum[s][i]);
  if (lane != 0 || wanted >= width)
    return;
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    if (i >= Config::least_rows && i >= shape.m())
      continue;
    Vec<f32, 1> totals[sums];
#pragma unroll
    for (int s = 0; s < sums; ++s)
      totals[s][0] = sum[s][i];
    finish<Config>(epilogue, place, shape, i, n, totals);
  }
}
