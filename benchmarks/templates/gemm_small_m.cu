#include "gemm_small_m.cuh"

#include "gemm_cases.cuh"

constexpr i64 n = 14336, k = 4096;

template <int RowTiles, int Tiles, int WarpsN, int KSplit, int Stages> struct Config : OneMatmul {
  using type = bf16;
  static constexpr int row_tiles = RowTiles, tiles = Tiles, warps_n = WarpsN, k_split = KSplit, stages = Stages;
  static constexpr bool all_rows = RowTiles > 1, whole_steps = true, weights_before_wait = true;
};

KERNEL(128) gemm_small_m_1(const bf16 *a, const bf16 *b, bf16 *c) {
  gemm_small_m<Config<1, 2, 1, 4, 2>>(Sizes{1, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, true>{b, k}, StoreRounded<bf16>{c});
}
KERNEL(128) gemm_small_m_16(const bf16 *a, const bf16 *b, bf16 *c) {
  gemm_small_m<Config<2, 2, 1, 4, 2>>(Sizes{16, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, true>{b, k}, StoreRounded<bf16>{c});
}
KERNEL_RESIDENT(256, 1) gemm_small_m_32(const bf16 *a, const bf16 *b, bf16 *c) {
  gemm_small_m<Config<4, 2, 2, 4, 1>>(Sizes{32, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, true>{b, k}, StoreRounded<bf16>{c});
}

int main() {
  time_matmul("gemm_small_m 1 x 14336 x 4096", gemm_small_m_1, n / 32, 128, 1, n, k);
  time_matmul("gemm_small_m 16 x 14336 x 4096", gemm_small_m_16, n / 32, 128, 16, n, k);
  time_matmul("gemm_small_m 32 x 14336 x 4096", gemm_small_m_32, n / 64, 256, 32, n, k);
}
