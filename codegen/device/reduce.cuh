#pragma once
// Reductions over lanes of a warp and over a block.

#include "machine.cuh"

// Reductions over groups of Lanes neighbouring lanes (a power of two up to 32); all lanes of the warp take
// part and every lane gets its group's result, the same bits in each.
template <int Lanes> DEVICE f32 lanes_sum(f32 value) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) {
    const f32 other = shuffle_xor(value, mask);
    value = value + other;
  }
  return value;
}
template <int Lanes> DEVICE f32 lanes_max(f32 value) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) {
    const f32 other = shuffle_xor(value, mask);
    value = max_nan(value, other);
  }
  return value;
}
template <int Lanes> DEVICE f32 lanes_min(f32 value) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) {
    const f32 other = shuffle_xor(value, mask);
    value = min_nan(value, other);
  }
  return value;
}
DEVICE f32 warp_sum(f32 value) { return lanes_sum<32>(value); }
DEVICE f32 warp_max(f32 value) { return lanes_max<32>(value); }
DEVICE f32 warp_min(f32 value) { return lanes_min<32>(value); }

// One value per warp, seen by every thread. Threads lie along x alone.
// The scratch is the call site's own: no barrier is needed before it is written. Site -1 is for calls that
// are reached more than once; its first barrier lets the previous use be read to its end.
template <int Threads, int Site> DEVICE const f32 *share_warps(f32 value) {
  static_assert(Threads % 32 == 0 && Threads > 32 && Threads <= 1024, "whole warps");
  SHARED(f32, scratch, (Threads / 32 + 3) / 4 * 4);
  if (Site < 0)
    barrier();
  if (thread_x() % 32u == 0)
    scratch[thread_x() / 32u] = value;
  barrier();
  return scratch;
}

// Reductions over the block, which has exactly Threads threads; every thread gets the result. Up to eight
// warps' values each thread combines itself, which takes less time than shuffles do.
#define FUSION_BLOCK_REDUCTION(name, lanes, combine, empty)                                                  \
  template <int Threads, int Site = -1>                                                                      \
  DEVICE f32 name(f32 value) {                                                                               \
    const f32 mine = lanes<32>(value);                                                                       \
    if constexpr (Threads == 32) {                                                                           \
      return mine;                                                                                           \
    } else {                                                                                                 \
      constexpr int warps = Threads / 32;                                                                    \
      const f32 *scratch = share_warps<Threads, Site>(mine);                                                 \
      if constexpr (warps > 8) {                                                                             \
        constexpr int group = warps > 16 ? 32 : 16;                                                          \
        const u32 place = thread_x() % (u32)group;                                                           \
        return lanes<group>(place < (u32)warps ? scratch[place] : empty);                                    \
      } else {                                                                                               \
        f32 total = scratch[0];                                                                              \
        _Pragma("unroll") for (int i = 1; i < warps; ++i) {                                                  \
          const f32 other = scratch[i];                                                                      \
          total = combine;                                                                                   \
        }                                                                                                    \
        return total;                                                                                        \
      }                                                                                                      \
    }                                                                                                        \
  }
FUSION_BLOCK_REDUCTION(block_sum, lanes_sum, total + other, 0.f)
FUSION_BLOCK_REDUCTION(block_max, lanes_max, max_nan(total, other), -inf_f32())
FUSION_BLOCK_REDUCTION(block_min, lanes_min, min_nan(total, other), inf_f32())
#undef FUSION_BLOCK_REDUCTION
