#pragma once
// A barrier of the four warps of a warpgroup, of which a block has up to 15.

#include "tma.cuh"

struct Meeting {
  u64 *met; ///< an mbarrier that four threads complete: the emulation knows no barriers by number
  int group;
  u32 parity = 0;
  /// Until all four have come.
  DEVICE void meet() {
#ifdef FUSION_EMULATED
    warp_barrier();
    if (lane_id() == 0)
      mbarrier_arrive(met);
    mbarrier_wait(met, parity);
    parity ^= 1;
#else
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#endif
  }
};
