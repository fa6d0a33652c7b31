#pragma once

#include "reduce.cuh"

// The mean of some elements, and the sum of the squares of their distances from it. Those of two sets give
// those of both (Chan, Golub and LeVeque): to the squares comes what the distance of the two means adds. No
// large numbers are subtracted and all terms of the squares are positive, so they are as exact as squares
// about the mean of all, wherever that lies. Means are joined by their distances, so that equal elements have
// exactly their own value as mean, and squares of 0.
struct Moments {
  f32 mean, squares;
};
// Over Lanes neighbouring lanes with Count elements each; the same bits in every lane.
template <int Lanes, int Count> DEVICE Moments lanes_moments(f32 mean, f32 squares) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) {
    const f32 count = (f32)(Lanes / 2 / mask * Count); // of the elements behind each of the two means
    const f32 other = shuffle_xor(mean, mask), apart = mean - other;
    squares = (squares + shuffle_xor(squares, mask)) + apart * apart * (0.5f * count);
    mean = 0.5f * mean + 0.5f * other;
  }
  return Moments{mean, squares};
}
// Over the block, whose warps have `count` elements, which may be none but of the first, with these moments;
// `inverse`: 1 / number of all. Even: all warps have as many, a number that the compiler knows. Site: as for
// block_sum.
template <int Threads, int Site, bool Even>
DEVICE Moments block_moments(f32 count, const Moments &warp, f32 inverse) {
  static_assert(Threads % 32 == 0 && Threads > 32 && Threads <= 1024 && Site >= 0, "whole warps");
  constexpr int warps = Threads / 32;
  SHARED(f32, means, warps);
  SHARED(f32, squares, warps);
  SHARED(f32, counts, warps);
  const u32 warpNumber = thread_x() / 32u;
  if (thread_x() % 32u == 0) {
    means[warpNumber] = warp.mean;
    squares[warpNumber] = warp.squares;
    if (!Even)
      counts[warpNumber] = count;
  }
  barrier();
  const f32 first = means[0];
  if constexpr (warps > 8) {
    constexpr int group = warps > 16 ? 32 : 16;
    const int place = (int)(thread_x() % (u32)group);
    const f32 mine = place < warps ? means[place] : first, of = place >= warps ? 0.f
                                                                : Even         ? count
                                                                               : counts[place];
    const f32 mean = first + lanes_sum<group>(of * (mine - first)) * inverse, apart = mine - mean;
    return Moments{mean, lanes_sum<group>((place < warps ? squares[place] : 0.f) + of * (apart * apart))};
  } else if constexpr (Even) { // two by two, which holds the fewest in registers
    Moments all[warps];
    f32 of[warps];
#pragma unroll
    for (int i = 0; i < warps; ++i) {
      all[i] = Moments{means[i], squares[i]};
      of[i] = count;
    }
#pragma unroll
    for (int step = 1; step < warps; step *= 2)
#pragma unroll
      for (int i = 0; i + step < warps; i += 2 * step) {
        const f32 apart = all[i + step].mean - all[i].mean, both = of[i] + of[i + step],
                  share = of[i + step] * (1.f / both);
        all[i] = Moments{all[i].mean + apart * share,
                         (all[i].squares + all[i + step].squares) + apart * apart * (of[i] * share)};
        of[i] = both;
      }
    return all[0];
  } else {
    f32 apart = 0.f, total = 0.f;
#pragma unroll
    for (int i = 0; i < warps; ++i) {
      apart = apart + counts[i] * (means[i] - first);
      total = total + squares[i];
    }
    const f32 mean = first + apart * inverse;
#pragma unroll
    for (int i = 0; i < warps; ++i)
      total = total + counts[i] * ((means[i] - mean) * (means[i] - mean));
    return Moments{mean, total};
  }
}
