#pragma once
// What the benchmarks of the matmul templates share: operands in bf16, C = A B with nothing after it.

#include "gemm.cuh"
#include "runner.cuh"

struct OneMatmul {
  static constexpr int matmuls = 1;
  static constexpr bool combined = false, batched = false;
};

/// Times C = A B of m × k and k × n elements.
inline void time_matmul(const char *label, void (*kernel)(const bf16 *, const bf16 *, bf16 *), unsigned grid,
                        unsigned threads, size_t m, size_t n, size_t k) {
  const double bytes = 2.0 * double(m * k + n * k + m * n);
  std::vector<std::tuple<const bf16 *, const bf16 *, bf16 *>> arguments;
  for (size_t i = 0; i < bench::rotations(bytes); ++i)
    arguments.emplace_back(bench::random<bf16>(m * k), bench::random<bf16>(n * k),
                           bench::random<bf16>(m * n));
  bench::time(label, kernel, {grid, threads, 0}, bytes, 2.0 * double(m * n * k), arguments);
  for (const auto &[a, b, c] : arguments)
    for (const bf16 *memory : {a, b, static_cast<const bf16 *>(c)})
      bench::check(cudaFree(const_cast<bf16 *>(memory)));
}
