#pragma once
// Where one is in a ring of shared memory whose stages have mbarriers.

#include "types.cuh"

/// A stage, and the parity of its phase when it is full.
struct RingPlace {
  int stage = 0;
  u32 parity = 0;
  template <int Stages>
  DEVICE void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};
