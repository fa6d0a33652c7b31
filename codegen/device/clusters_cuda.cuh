#pragma once

#include "machine.cuh"

// Clusters of blocks, from sm_90 on. Where there are none, the first block of each does all the work:
// cluster_blocks is how many blocks work. Each cluster_arrive() is followed by one cluster_wait().
#if HAS_CLUSTERS
#define KERNEL_CLUSTER(maxThreads, resident, blocks)                                                         \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(maxThreads, resident)
template <int Blocks> constexpr int cluster_blocks = Blocks;
DEVICE u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
// For what does not go through memory: mbarriers after fence_mbarrier_init().
DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Of a place in the shared memory of this block the same one in that of block `rank`.
DEVICE u32 place_in_cluster(const void *place, u32 rank) {
  u32 other;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(shared_address(place)), "r"(rank));
  return other;
}
DEVICE void store_in_cluster(u32 *to, u32 rank, u32 value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(place_in_cluster(to, rank)), "r"(value) : "memory");
}
// What counts for the mbarrier there of which `barrier` is the place here.
#define FUSION_SEND "st.async.shared::cluster.mbarrier::complete_tx::bytes"
DEVICE void send_in_cluster(f32 *to, u32 rank, u64 *barrier, f32 value) {
  asm volatile(FUSION_SEND ".f32 [%0], %1, [%2];" ::"r"(place_in_cluster(to, rank)), "f"(value),
               "r"(place_in_cluster(barrier, rank))
               : "memory");
}
DEVICE void send_in_cluster(Vec<f32, 4> *to, u32 rank, u64 *barrier, const f32 (&values)[4]) {
  asm volatile(FUSION_SEND ".v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(place_in_cluster(to, rank)),
               "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]),
               "r"(place_in_cluster(barrier, rank))
               : "memory");
}
#undef FUSION_SEND
#else
#define KERNEL_CLUSTER(maxThreads, resident, blocks) KERNEL_RESIDENT(maxThreads, resident)
template <int Blocks> constexpr int cluster_blocks = 1;
DEVICE u32 cluster_rank() { return 0; }
DEVICE void cluster_arrive() {}
DEVICE void cluster_arrive_relaxed() {}
DEVICE void cluster_wait() { barrier(); }
DEVICE void store_in_cluster(u32 *to, u32, u32 value) { *to = value; }
DEVICE void send_in_cluster(f32 *to, u32, u64 *, f32 value) { *to = value; }
#endif
