#include "attention_decode_mma.cuh"

#include "attention_cases.cuh"

template <int Cluster>
struct Config : AttentionConfig {
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
/// Keys and values through a ring of so many tiles a warp: benchmarks/notes-attention.md.
struct RingConfig : Config<1> {
  static constexpr int ring = 2;
};
KERNEL_CLUSTER(256, 1, 8) by_8(bench::Body<bf16> body) { attention_decode_mma<Config<8>>(body); }
KERNEL_CLUSTER(256, 1, 2) by_2(bench::Body<bf16> body) { attention_decode_mma<Config<2>>(body); }
KERNEL_RESIDENT(256, 1) alone(bench::Body<bf16> body) { attention_decode_mma<Config<1>>(body); }
KERNEL_RESIDENT(256, 1) through_ring(bench::Body<bf16> body) { attention_decode_mma<RingConfig>(body); }

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
  // Heads lie keys x 256 bytes apart: at a power of two, and near it.
  constexpr int ring = RingConfig::ring * RingConfig::warps * DecodeMma<RingConfig>::tile_keys * 2 * 128 * 2;
  for (int keys : {1000, 1024, 1032, 1040, 1105, 2048, 2056, 4096, 4104}) {
    bench::attention("attention_decode_mma bf16", alone, 8, 256, 1, shared, 32, 1, keys, true);
    bench::attention("attention_decode_mma bf16, ring", through_ring, 8, 256, 1,
                     ring > shared ? ring : shared, 32, 1, keys, true);
  }
}
