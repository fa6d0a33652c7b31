#include "gemm_sm100.cuh"

#include "gemm_maps.cuh"

template <int TileN, int Stages>
struct Config : GemmConfig {
  using type = bf16;
  using result = bf16;
  static constexpr int tile_n = TileN, stages = Stages, vector = 8;
  static constexpr bool k_major = true, a_batched = false, b_batched = false;
};

#define GEMM_SM100(name, m, n, k, tile_n, stages)                                                            \
  KERNEL(320) name(bf16 *c, const GRID_CONSTANT TensorMap a, const GRID_CONSTANT TensorMap b) {              \
    gemm_sm100<Config<tile_n, stages>>(Sizes{m, n, k}, 1, Unscaled{}, StoreRounded<bf16>{{c}}, a, b);        \
  }                                                                                                          \
  inline void time_##name() {                                                                                \
    time_tiles("gemm_sm100 " #m " x " #n " x " #k ", " #tile_n " columns", name, 320, m, n, k, tile_n,       \
               stages);                                                                                      \
  }

GEMM_SM100(gemm_sm100_4096, 4096, 14336, 4096, 256, 4)
GEMM_SM100(gemm_sm100_1024, 1024, 14336, 4096, 224, 5)
GEMM_SM100(gemm_sm100_512, 512, 6144, 4096, 192, 5)
GEMM_SM100(gemm_sm100_odd, 2000, 4104, 4096, 192, 5)
GEMM_SM100(gemm_sm100_cube, 8192, 8192, 8192, 256, 4)

int main() {
  time_gemm_sm100_4096();
  time_gemm_sm100_1024();
  time_gemm_sm100_512();
  time_gemm_sm100_odd();
  time_gemm_sm100_cube();
}
