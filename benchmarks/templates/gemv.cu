#include "gemv.cuh"

#include "gemm_cases.cuh"

constexpr i64 n = 14336, k = 4096;

template <int Rows> struct Config : OneMatmul {
  static constexpr int rows = Rows, least_rows = Rows, vector = 8, unroll = 4;
};

KERNEL(128) gemv_1(const bf16 *a, const bf16 *b, bf16 *c) {
  gemv<Config<1>>(Sizes{1, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, true>{b, k}, NoPrologue{}, StoreRounded<bf16>{c});
}
KERNEL(128) gemv_4(const bf16 *a, const bf16 *b, bf16 *c) {
  gemv<Config<4>>(Sizes{4, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, true>{b, k}, NoPrologue{}, StoreRounded<bf16>{c});
}

int main() {
  time_matmul("gemv 1 x 14336 x 4096", gemv_1, n / 4, 128, 1, n, k);
  time_matmul("gemv 4 x 14336 x 4096", gemv_4, n / 4, 128, 4, n, k);
}
