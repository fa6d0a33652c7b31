#pragma once
// Matmuls in tiles that one block a multiprocessor takes one after the other, of operands that TMA reads.

#include "gemm_cases.cuh"

#include <cuda.h>

/// Rows of k elements, in boxes of `box` rows.
inline TensorMap rows_of(const bf16 *data, size_t rows, size_t k, unsigned box) {
  void *encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  bench::check(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
  CUtensorMap map;
  const cuuint64_t shape[] = {k, rows, 1}, strides[] = {2 * k, 2 * k};
  const cuuint32_t extent[] = {64, box, 1}, each[] = {1, 1, 1};
  const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<bf16 *>(data), shape, strides, extent, each,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (made != CUDA_SUCCESS)
    std::exit(1);
  TensorMap result;
  memcpy(&result, &map, sizeof(result));
  return result;
}

inline void time_tiles(const char *label, void (*kernel)(bf16 *, TensorMap, TensorMap), unsigned threads,
                       size_t m, size_t n, size_t k, unsigned tile_n, unsigned stages) {
  const double bytes = 2.0 * double(m * k + n * k + m * n);
  std::vector<std::tuple<bf16 *, TensorMap, TensorMap>> arguments;
  std::vector<bf16 *> memory;
  for (size_t i = 0; i < bench::rotations(bytes); ++i) {
    for (size_t count : {m * k, n * k, m * n})
      memory.push_back(bench::random<bf16>(count));
    bf16 *const *last = memory.data() + memory.size() - 3;
    arguments.emplace_back(last[2], rows_of(last[0], m, k, 128), rows_of(last[1], n, k, tile_n));
  }
  int processors = 0;
  bench::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  const size_t tiles = (m + 127) / 128 * ((n + tile_n - 1) / tile_n);
  const auto grid = unsigned(std::min<size_t>(tiles, size_t(processors)));
  bench::time(label, kernel, {grid, threads, stages * 128 * (128 + tile_n) + 1024}, bytes,
              2.0 * double(m * n * k), arguments);
  for (bf16 *each : memory)
    bench::check(cudaFree(each));
}
