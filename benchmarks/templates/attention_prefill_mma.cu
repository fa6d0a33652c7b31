#include "attention_prefill_mma.cuh"

#include "attention_cases.cuh"

struct Config : AttentionConfig {
  using Query = bf16;
  using Key = bf16;
  using Value = bf16;
  using Mask = void;
  static constexpr int page_size = 0;
  static constexpr int depth = 128, value_depth = 128, window = 0, warps = 4, row_tiles = 2, tile_keys = 32;
  static constexpr bool bounded_above = false, bounded_below = false, ragged = false;
  static constexpr bool causal = true, zero_masked_rows = false, scale_only = true;
  static constexpr f32 exponent_scale = 0.180336877f; // 0.125 * log2(e)
};
KERNEL_RESIDENT(128, 2) kernel(bench::Body<bf16> body) { attention_prefill_mma<Config>(body); }

int main() {
  using Shape = PrefillMma<Config>;
  for (int length : {512, 2048, 8192})
    bench::attention("attention_prefill_mma bf16", kernel, Shape::rows, Shape::threads, 1,
                     Shape::shared_bytes, 1, length, length, true);
}
