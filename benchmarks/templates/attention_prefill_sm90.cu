#include "attention_prefill_sm90.cuh"

#include "attention_cases.cuh"

struct Config : AttentionConfig {
  using Query = bf16;
  using Key = bf16;
  using Value = bf16;
  using Mask = void;
  static constexpr int page_size = 0;
  static constexpr int depth = 128, value_depth = 128, window = 0, warps = 8, row_tiles = 1, tile_keys = 128;
  static constexpr bool bounded_above = false, bounded_below = false, ragged = false;
  static constexpr bool causal = true, zero_masked_rows = false, scale_only = true;
  static constexpr f32 exponent_scale = 0.180336877f; // 0.125 * log2(e)
};
KERNEL_RESIDENT(256, 1) kernel(bench::Body<bf16> body) { attention_prefill_sm90<Config>(body); }

int main() {
  using Shape = PrefillSm90<Config>;
  for (int length : {512, 2048, 8192})
    bench::attention("attention_prefill_sm90 bf16", kernel, Shape::rows, Shape::threads, 1,
                     Shape::shared_bytes, 1, length, length, true);
}
