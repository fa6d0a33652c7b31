#pragma once

#include "clusters.cuh"
#include "reduce.cuh"

// Reductions over the blocks of a cluster that share a row, of Threads threads each; every thread gets the
// result. What the warps of all blocks have found is written to each block's own scratch, so that one barrier
// is enough.
#define FUSION_CLUSTER_REDUCTION(name, inBlock, lanes, combine, empty)                                       \
  template <int Threads, int Site, int Blocks>                                                               \
  DEVICE f32 name(f32 value) {                                                                               \
    if constexpr (cluster_blocks<Blocks> == 1) {                                                             \
      return inBlock<Threads, Site>(value);                                                                  \
    } else {                                                                                                 \
      constexpr int warps = Threads / 32, all = warps * Blocks;                                              \
      SHARED(f32, scratch, (all + 3) / 4 * 4);                                                               \
      const f32 mine = lanes<32>(value);                                                                     \
      const u32 lane = thread_x() % 32u;                                                                     \
      if (lane < (u32)Blocks)                                                                                \
        store_in_cluster(&scratch[cluster_rank() * warps + thread_x() / 32u], lane, mine);                   \
      cluster_arrive();                                                                                      \
      cluster_wait();                                                                                        \
      f32 total = lane < (u32)all ? scratch[lane] : empty;                                                   \
      _Pragma("unroll") for (int i = 32; i < all; i += 32) {                                                 \
        const f32 other = lane + i < (u32)all ? scratch[lane + i] : empty;                                   \
        total = combine;                                                                                     \
      }                                                                                                      \
      return lanes<32>(total);                                                                               \
    }                                                                                                        \
  }
FUSION_CLUSTER_REDUCTION(cluster_sum, block_sum, lanes_sum, total + other, 0.f)
FUSION_CLUSTER_REDUCTION(cluster_max, block_max, lanes_max, max_nan(total, other), -inf_f32())
FUSION_CLUSTER_REDUCTION(cluster_min, block_min, lanes_min, min_nan(total, other), inf_f32())
#undef FUSION_CLUSTER_REDUCTION
