#include "gemm_swap_ab.cuh"

#include "gemm_cases.cuh"
#include "weight_maps.cuh"

template <int Rows, int Tiles, int Boxes, int Stages, int KSplit, bool KMajor>
struct Config : GemmConfig {
  using type = bf16;
  static constexpr int rows = Rows, tiles = Tiles, boxes = Boxes, stages = Stages, k_split = KSplit;
  static constexpr int vector = Rows < 16 ? 4 : 8;
  static constexpr bool k_major = KMajor, weights_before_wait = true;
};

constexpr i64 wide = 14336, narrow = 4096;

// n x k of B, and where its columns and K are shared out as MatmulSwapAB.cpp does.
KERNEL_RESIDENT(160, 1) rows_1(const GRID_CONSTANT TensorMap a, const GRID_CONSTANT TensorMap b, bf16 *c) {
  gemm_swap_ab<Config<8, 2, 1, 12, 1, true>>(Sizes{1, wide, narrow}, Unscaled{}, StoreRounded<bf16>{c}, a, b);
}
KERNEL_RESIDENT(160, 1) rows_1_kn(const GRID_CONSTANT TensorMap a, const GRID_CONSTANT TensorMap b, bf16 *c) {
  gemm_swap_ab<Config<8, 2, 1, 12, 1, false>>(Sizes{1, wide, narrow}, Unscaled{}, StoreRounded<bf16>{c}, a, b);
}
KERNEL_CLUSTER(160, 1, 2) rows_64(const GRID_CONSTANT TensorMap a, const GRID_CONSTANT TensorMap b, bf16 *c) {
  gemm_swap_ab<Config<64, 1, 2, 6, 2, true>>(Sizes{64, narrow, wide}, Unscaled{}, StoreRounded<bf16>{c}, a, b);
}
KERNEL_CLUSTER(160, 1, 2)
rows_64_kn(const GRID_CONSTANT TensorMap a, const GRID_CONSTANT TensorMap b, bf16 *c) {
  gemm_swap_ab<Config<64, 1, 2, 6, 2, false>>(Sizes{64, narrow, wide}, Unscaled{}, StoreRounded<bf16>{c}, a, b);
}

template <class Config, class Kernel>
void time_swapped(const char *label, Kernel kernel, unsigned grid, i64 m, i64 n, i64 k) {
  using Block = SwapAB<Config>;
  const double bytes = 2.0 * double(m * k + n * k + m * n);
  std::vector<std::tuple<TensorMap, TensorMap, bf16 *>> arguments;
  for (size_t i = 0; i < bench::rotations(bytes); ++i) {
    const bf16 *a = bench::random<bf16>(m * k), *b = bench::random<bf16>(n * k);
    arguments.emplace_back(map_of(a, m, k, Config::rows),
                           Config::k_major ? map_of(b, n, k, 64) : map_of(b, k, n, 64),
                           bench::random<bf16>(m * n));
  }
  bench::time(label, kernel, {grid, Block::threads, unsigned(Block::stages * Block::stage_size * 2 + 1024)},
              bytes, 2.0 * double(m * n * k), arguments);
}

int main() {
  bench::check(cudaFree(nullptr));
  time_swapped<Config<8, 2, 1, 12, 1, true>>("gemm_swap_ab 1 x 14336 x 4096", rows_1, wide / 128, 1, wide,
                                             narrow);
  time_swapped<Config<8, 2, 1, 12, 1, false>>("gemm_swap_ab 1 x 14336 x 4096, [K, N]", rows_1_kn, wide / 128,
                                              1, wide, narrow);
  time_swapped<Config<64, 1, 2, 6, 2, true>>("gemm_swap_ab 64 x 4096 x 14336", rows_64, narrow / 32, 64,
                                             narrow, wide);
  time_swapped<Config<64, 1, 2, 6, 2, false>>("gemm_swap_ab 64 x 4096 x 14336, [K, N]", rows_64_kn,
                                              narrow / 32, 64, narrow, wide);
}
