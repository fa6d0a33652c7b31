#pragma once

#include "clusters.cuh"
#include "reduce.cuh"
#include "tma.cuh"

// Of each Site an mbarrier that completes when all warps of the cluster have sent what they found. Sites are
// small numbers, and those 64 above them: see RowThread::total().
constexpr int most_cluster_sites = 16;
DEVICE constexpr int cluster_site(int site) { return site / 64 * 8 + site % 64; }
template <int Blocks>
DEVICE u64 *cluster_arrivals() {
  SHARED(u64, arrived, most_cluster_sites);
  return arrived;
}
// When a block of Threads threads starts, before its cluster_arrive_relaxed(); one cluster_wait() comes
// before the first reduction.
template <int Threads, int Blocks>
DEVICE void start_cluster_reductions() {
  if constexpr (cluster_blocks<Blocks> != 1)
    if (thread_x() < (u32)most_cluster_sites) {
      u64 *arrived = cluster_arrivals<Blocks>() + thread_x();
      mbarrier_init(arrived, 1);
      fence_mbarrier_init();
      mbarrier_arrive_expect(arrived, (u32)(Threads / 32 * Blocks * (int)sizeof(f32)));
    }
}

// Reductions over the blocks of a cluster that share a row, of Threads threads each, once for each Site;
// every thread gets the result. What the warps of all blocks have found is sent to each block's own scratch,
// which waits for nothing else.
#define FUSION_CLUSTER_REDUCTION(name, inBlock, lanes, combine, empty)                                       \
  template <int Threads, int Site, int Blocks>                                                               \
  DEVICE f32 name(f32 value) {                                                                               \
    if constexpr (cluster_blocks<Blocks> == 1) {                                                             \
      return inBlock<Threads, Site>(value);                                                                  \
    } else {                                                                                                 \
      constexpr int warps = Threads / 32, all = warps * Blocks;                                              \
      static_assert(Site % 64 < 8 && Site < 128, "an mbarrier for each site");                               \
      SHARED(f32, scratch, (all + 3) / 4 * 4);                                                               \
      u64 *arrived = cluster_arrivals<Blocks>() + cluster_site(Site);                                        \
      const f32 mine = lanes<32>(value);                                                                     \
      const u32 lane = thread_x() % 32u;                                                                     \
      if (lane < (u32)Blocks)                                                                                \
        send_in_cluster(&scratch[cluster_rank() * warps + thread_x() / 32u], lane, arrived, mine);           \
      mbarrier_wait(arrived, 0);                                                                             \
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
