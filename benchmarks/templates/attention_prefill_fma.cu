#include "attention_prefill_fma.cuh"

#include "attention_cases.cuh"

struct Config : AttentionConfig {
  using Query = f32;
  using Key = f32;
  using Value = f32;
  using Mask = void;
  static constexpr int depth = 128, value_depth = 128, window = 0, page_size = 0, tile_keys = 32;
  static constexpr bool bounded_above = false, bounded_below = false, ragged = false;
  static constexpr bool causal = true, zero_masked_rows = false;
};
KERNEL_RESIDENT(128, 4) kernel(bench::Body<f32> body) { attention_prefill_fma<Config>(body); }

int main() {
  for (int length : {512, 2048})
    bench::attention("attention_prefill_fma f32", kernel, 16, 128, 1, 0, 1, length, length, true);
}
