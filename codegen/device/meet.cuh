#pragma once
// Barriers of some of a block's warps.

#include "tma.cuh"

/// Until all the warps have come whose first lanes complete the mbarrier `met`. `phase` counts.
DEVICE void meet_warps(u64 *met, u32 &phase) {
  warp_barrier();
  if (lane_id() == 0)
    mbarrier_arrive(met);
  mbarrier_wait(met, phase & 1u);
  ++phase;
}

/// Some of a block's warps, `Threads` of up to 15 such groups of equal size.
template <int Threads>
struct WarpMeeting {
  u64 *met; ///< an mbarrier that each warp completes a share of: the emulation knows no barriers by number
  int group;
  u32 phase = 0;
  /// Until all have come.
  DEVICE void meet() {
#ifdef FUSION_EMULATED
    meet_warps(met, phase);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(Threads) : "memory");
#endif
  }
};
/// The four warps of a warpgroup.
using Meeting = WarpMeeting<128>;
