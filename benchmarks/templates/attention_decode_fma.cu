#include "attention_decode_fma.cuh"

#include "attention_cases.cuh"

template <int Cluster>
struct Config : AttentionConfig {
  using Query = f32;
  using Key = f32;
  using Value = f32;
  using Mask = void;
  static constexpr int page_size = 0;
  static constexpr int depth = 128, value_depth = 128, window = 0, warps = 8, cluster = Cluster,
                       key_vector = 4, value_vector = 4;
  static constexpr bool bounded_above = false, bounded_below = false, ragged = false;
  static constexpr bool causal = true, zero_masked_rows = false;
};
KERNEL_CLUSTER(256, 1, 8) by_8(bench::Body<f32> body) { attention_decode_fma<Config<8>>(body); }
KERNEL_RESIDENT(256, 1) alone(bench::Body<f32> body) { attention_decode_fma<Config<1>>(body); }

int main() {
  constexpr int shared = DecodeFma<Config<1>>::shared_bytes;
  for (auto [batch, keys] : {std::pair(1, 1024), std::pair(1, 8192), std::pair(32, 1024)})
    bench::attention("attention_decode_fma f32", batch == 1 ? by_8 : alone, 4, 256, batch == 1 ? 8 : 1,
                     shared, batch, 1, keys, true);
}
