#include "gemv_kn.cuh"

#include "gemm_cases.cuh"

constexpr i64 n = 14336, k = 4096;

template <int Rows, int Threads> struct Config : OneMatmul {
  static constexpr int rows = Rows, least_rows = Rows, vector = 8, steps = 8, columns = 64, threads = Threads;
};

KERNEL(512) gemv_kn_1(const bf16 *a, const bf16 *b, bf16 *c) {
  gemv_kn<Config<1, 512>>(Sizes{1, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, false>{b, n}, NoPrologue{}, StoreRounded<bf16>{c});
}
KERNEL(256) gemv_kn_4(const bf16 *a, const bf16 *b, bf16 *c) {
  gemv_kn<Config<4, 256>>(Sizes{4, n, k}, Matrix<bf16, true>{a, k}, Matrix<bf16, false>{b, n}, NoPrologue{}, StoreRounded<bf16>{c});
}

int main() {
  time_matmul("gemv_kn 1 x 4096 x 14336", gemv_kn_1, n / 64, 512, 1, n, k);
  time_matmul("gemv_kn 4 x 4096 x 14336", gemv_kn_4, n / 64, 256, 4, n, k);
}
