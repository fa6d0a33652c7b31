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

template <int TileN, int Stages>
struct TileConfig : GemmConfig {
  using type = bf16;
  using result = bf16;
  static constexpr int tile_n = TileN, stages = Stages, vector = 8;
  static constexpr bool k_major = true, a_batched = false, b_batched = false;
};

/// A kernel `name` of the template `matmul`, and time_<name>().
#define TILES(matmul, threads, name, m, n, k, tile_n, stages)                                                \
  KERNEL(threads) name(bf16 *c, const GRID_CONSTANT TensorMap a, const GRID_CONSTANT TensorMap b) {          \
    matmul<TileConfig<tile_n, stages>>(Sizes{m, n, k}, 1, Unscaled{}, StoreRounded<bf16>{{c}}, a, b);        \
  }                                                                                                          \
  inline void time_##name() {                                                                                \
    time_tiles(#matmul " " #m " x " #n " x " #k ", " #tile_n " columns", name, threads, m, n, k, tile_n,     \
               stages);                                                                                      \
  }

/// A program that times `matmul` at the sizes that are compared.
#define TILES_PROGRAM(matmul, threads)                                                                       \
  TILES(matmul, threads, matmul##_4096, 4096, 14336, 4096, 256, 4)                                           \
  TILES(matmul, threads, matmul##_1024, 1024, 14336, 4096, 224, 5)                                           \
  TILES(matmul, threads, matmul##_512, 512, 6144, 4096, 192, 5)                                              \
  TILES(matmul, threads, matmul##_odd, 2000, 4104, 4096, 192, 5)                                             \
  TILES(matmul, threads, matmul##_cube, 8192, 8192, 8192, 256, 4)                                            \
  int main() {                                                                                               \
    time_##matmul##_4096();                                                                                  \
    time_##matmul##_1024();                                                                                  \
    time_##matmul##_512();                                                                                   \
    time_##matmul##_odd();                                                                                   \
    time_##matmul##_cube();                                                                                  \
  }
