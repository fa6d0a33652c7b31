#pragma once

#include "reduce.cuh"

// The sum of some elements, and the sum of the squares of their distances from their own mean. Those of two sets give those
// of both (Chan, Golub and LeVeque): to the squares comes what the distance of the two means adds. No large numbers are
// subtracted and all terms of the squares are positive, so they are as exact as squares about the mean of all, wherever that
// lies.
struct Moments {
  f32 sum, squares;
};
// Over Lanes neighbouring lanes with Count elements each; the same bits in every lane.
template <int Lanes, int Count> DEVICE Moments lanes_moments(f32 sum, f32 squares) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) {
    const f32 count = (f32)(Lanes / 2 / mask * Count); // of the elements after each of the two sums
    const f32 other = shuffle_xor(sum, mask), apart = (sum - other) * (1.f / count);
    squares = (squares + shuffle_xor(squares, mask)) + apart * apart * (0.5f * count);
    sum = sum + other;
  }
  return Moments{sum, squares};
}
// Over the block, whose warps have `count` elements, which may be none, with these moments; `inverse`: 1 / number of all.
// Even: all warps have as many, a number that the compiler knows. Site: as for block_sum.
template <int Threads, int Site, bool Even>
DEVICE Moments block_moments(f32 count, const Moments &warp, f32 inverse) {
  static_assert(Threads % 32 == 0 && Threads > 32 && Threads <= 1024 && Site >= 0, "whole warps");
  constexpr int warps = Threads / 32;
  SHARED(f32, sums, warps);
  SHARED(f32, squares, warps);
  SHARED(f32, counts, warps);
  const u32 warpNumber = thread_x() / 32u;
  if (thread_x() % 32u == 0) {
    sums[warpNumber] = warp.sum;
    squares[warpNumber] = warp.squares;
    if (!Even)
      counts[warpNumber] = count;
  }
  barrier();
  auto inverse_of = [](f32 number) { return number > 0.f ? 1.f / number : 0.f; };
  if constexpr (warps > 8) {
    constexpr int group = warps > 16 ? 32 : 16;
    const int place = (int)(thread_x() % (u32)group);
    const f32 mine = place < warps ? sums[place] : 0.f, of = place >= warps ? 0.f : Even ? count : counts[place];
    const f32 total = lanes_sum<group>(mine), apart = mine * inverse_of(of) - total * inverse;
    return Moments{total, lanes_sum<group>((place < warps ? squares[place] : 0.f) + of * (apart * apart))};
  } else if constexpr (Even) { // two by two, which holds the fewest in registers
    Moments all[warps];
    f32 of[warps];
#pragma unroll
    for (int i = 0; i < warps; ++i) {
      all[i] = Moments{sums[i], squares[i]};
      of[i] = count;
    }
#pragma unroll
    for (int step = 1; step < warps; step *= 2)
#pragma unroll
      for (int i = 0; i + step < warps; i += 2 * step) {
        const f32 apart = all[i].sum * inverse_of(of[i]) - all[i + step].sum * inverse_of(of[i + step]);
        const f32 both = of[i] + of[i + step], each = of[i] * of[i + step] * inverse_of(both);
        all[i] = Moments{all[i].sum + all[i + step].sum, (all[i].squares + all[i + step].squares) + apart * apart * each};
        of[i] = both;
      }
    return all[0];
  } else {
    Moments all = {0.f, 0.f};
#pragma unroll
    for (int i = 0; i < warps; ++i)
      all = Moments{all.sum + sums[i], all.squares + squares[i]};
#pragma unroll
    for (int i = 0; i < warps; ++i) {
      const f32 apart = sums[i] * inverse_of(counts[i]) - all.sum * inverse;
      all.squares = all.squares + counts[i] * (apart * apart);
    }
    return all;
  }
}
