#pragma once

#include "bytes_host.cuh"
#include "wgmma_host.cuh"

// Products of bytes by a warpgroup, emulated as wgmma_host.cuh does it; sums of f8 are exact to f32.
DEVICE u32 swizzled_word(u64 place) { return swizzled_bits<u32>(place); }
template <class A, class B, class Sum, int Fragments>
DEVICE void wgmma_byte_rows(Sum (&d)[Fragments][4], u64 a, u64 b, bool add) {
  const u32 group = lane_id() / 4u, four = 4u * (lane_id() % 4u);
  u32 first[4];
  for (u32 i = 0; i < 4u; ++i)
    first[i] = swizzled_word((u64)(u32)a + (warp_id() % 4u * 16u + group + 8u * (i % 2u)) * 128u + four +
                             16u * (i / 2u));
  for (u32 n = 0; n < (u32)Fragments; ++n) {
    u32 second[2];
    for (u32 i = 0; i < 2u; ++i)
      second[i] = swizzled_word((u64)(u32)b + (8u * n + group) * 128u + four + 16u * i);
    if (!add)
      d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
    mma_m16n8k32(d[n], first, second, A(), B());
  }
}
