#include "gemm_mma.cuh"

#include "gemm_cases.cuh"

constexpr i64 n = 14336, k = 4096;

template <int TileM, int TileN> struct Config : OneMatmul {
  using type = bf16;
  static constexpr int tile_m = TileM, tile_n = TileN, warps_m = 2, warps_n = 2, vector = 2;
  static constexpr Copy copy_a = Copy::Async, copy_b = Copy::Async;
};

#define GEMM_MMA(name, rows, tile_m, tile_n)                                                                 \
  KERNEL(128) name(const bf16 *a, const bf16 *b, bf16 *c) {                                                  \
    gemm_mma<Config<tile_m, tile_n>>(Sizes{rows, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, true>{b, k},  \
                                     StoreRounded<bf16>{c});                                                      \
  }
GEMM_MMA(gemm_mma_128, 128, 64, 64)
GEMM_MMA(gemm_mma_1024, 1024, 128, 128)
GEMM_MMA(gemm_mma_4096, 4096, 128, 128)

int main() {
  time_matmul("gemm_mma 128 x 14336 x 4096", gemm_mma_128, 2 * n / 64, 128, 128, n, k);
  time_matmul("gemm_mma 1024 x 14336 x 4096", gemm_mma_1024, 8 * n / 128, 128, 1024, n, k);
  time_matmul("gemm_mma 4096 x 14336 x 4096", gemm_mma_4096, 32 * n / 128, 128, 4096, n, k);
}
