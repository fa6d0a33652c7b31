#pragma once

#include "wgmma_host.cuh"

// Emulated as wgmma_host.cuh does it.
template <class T, int Fragments>
DEVICE void wgmma_registers(f32 (&d)[Fragments][4], const u32 (&a)[4], u64 b) {
  const u32 group = lane_id() / 4u, pair = 2u * (lane_id() % 4u);
  for (u32 n = 0; n < (u32)Fragments; ++n) {
    u32 second[2];
    for (u32 i = 0; i < 2u; ++i) {
      const u64 place = (u64)(u32)b + (8u * n + group) * 128u + (pair + 8u * i) * 2u;
      second[i] = swizzled_element(place) | swizzled_element(place + 2u) << 16;
    }
    mma_m16n8k16(d[n], a, second, T());
  }
}
