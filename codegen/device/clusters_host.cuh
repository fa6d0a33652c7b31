#pragma once

#include "machine.cuh"

// Clusters of blocks: there are none, the first block of each does all the work.
#define KERNEL_CLUSTER(maxThreads, resident, blocks) KERNEL(maxThreads)
template <int Blocks> constexpr int cluster_blocks = 1;
DEVICE u32 cluster_rank() { return 0; }
DEVICE void cluster_arrive() {}
DEVICE void cluster_arrive_relaxed() {}
DEVICE void cluster_wait() { barrier(); }
DEVICE void store_in_cluster(u32 *to, u32, u32 value) { *to = value; }
DEVICE void send_in_cluster(f32 *to, u32, u64 *, f32 value) { *to = value; }
