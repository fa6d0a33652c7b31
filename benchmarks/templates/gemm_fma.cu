#include "gemm_fma.cuh"

#include "gemm_cases.cuh"

constexpr i64 m = 512, n = 4096, k = 4096;

struct Config : OneMatmul {
  using accumulator = f32;
  static constexpr int vector = 4;
};

KERNEL(256) gemm_fma_512(const bf16 *a, const bf16 *b, bf16 *c) {
  gemm_fma<Config>(Sizes{m, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, true>{b, k}, StoreRounded<bf16>{c});
}

int main() { time_matmul("gemm_fma 512 x 4096 x 4096", gemm_fma_512, m / 64 * (n / 64), 256, m, n, k); }
