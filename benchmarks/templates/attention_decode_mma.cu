#include "attention_decode_mma.cuh"

#include "attention_cases.cuh"

template <int Cluster>
struct Config {
  using Query = bf16;
  using Key = bf16;
  using Value = bf16;
  using Mask = void;
  static constexpr int page_size = 0;
  static constexpr int depth = 128, value_depth = 128, window = 0, warps = 8, cluster = Cluster,
                       row_tiles = 1, stages = 0, streams = 1;
  static constexpr bool bounded_above = false, bounded_below = false, ragged = false;
  static constexpr bool causal = true, zero_masked_rows = false, queries_aligned = true;
};
KERNEL_CLUSTER(256, 1, 8) by_8(bench::Body<bf16> body) { attention_decode_mma<Config<8>>(body); }
KERNEL_CLUSTER(256, 1, 2) by_2(bench::Body<bf16> body) { attention_decode_mma<Config<2>>(body); }
KERNEL_RESIDENT(256, 1) alone(bench::Body<bf16> body) { attention_decode_mma<Config<1>>(body); }

int main() {
  constexpr int shared = DecodeMma<Config<1>>::shared_bytes;
  for (auto [batch, keys] : {std::pair(1, 1024), std::pair(1, 8192), std::pair(8, 1024), std::pair(32, 1024),
                             std::pair(32, 8192)}) {
    const unsigned cluster = batch == 1 ? 8 : batch == 8 ? 2 : 1;
    bench::attention("attention_decode_mma bf16",
                     cluster == 8   ? by_8
                     : cluster == 2 ? by_2
                                    : alone,
                     8, 256, cluster, shared, batch, 1, keys, true);
  }
}
