#pragma once

#include "scan.cuh"

// Updates that are gathered by those that they are for: nothing is written twice, so that the order of
// additions is that of the updates.
//
// Config: threads   of a block
//         width     elements of the result that a lane has
//         Held      the type in which they are reduced
// Body:   slice_of(i64 update)          the slice of the result that an update is for; below 0: none
//         element(i64 at)               what is there before
//         update(i64 update, i64 at)    an element of an update
//         reduce(Held, Held)
//         put(i64 at, Held)             stores one
// All of them return and take Held.

template <class T> DEVICE T larger_of(T a, T b) { return is_above(b, a) ? b : a; }
template <class T> DEVICE T smaller_of(T a, T b) {
  if constexpr (is_wide_float<T>)
    return is_nan(a) ? a : is_nan(b) || b < a ? b : a;
  else
    return b < a ? b : a;
}

// `size`: of the result; `slice`: elements that an update has.
template <class Config, class Body> DEVICE void scatter_reduce(Body body, i64 size, i64 updates, i64 slice) {
  using Held = typename Config::Held;
  constexpr i64 span = 32 * Config::width;
  constexpr u32 warps = Config::threads / 32;
  pdl_wait();
  pdl_launch_dependents();
  const i64 lane = lane_id();
  const i64 step = (i64)grid_dim_x() * warps * span;
  for (i64 first = ((i64)block_x() * warps + warp_id()) * span; first < size; first += step) {
    Held held[Config::width];
#pragma unroll
    for (int i = 0; i < Config::width; ++i)
      held[i] = first + lane + 32 * i < size ? body.element(first + lane + 32 * i) : Held(0);
    for (i64 begin = 0; begin < updates; begin += 32) {
      const i64 mine = begin + lane < updates ? body.slice_of(begin + lane) * slice : -1;
      u32 hits = warp_ballot(mine >= 0 && mine < first + span && mine + slice > first);
      for (; hits != 0; hits &= hits - 1) {
        const int which = bit_count((hits & (0u - hits)) - 1u); // the first
        const i64 to = shuffle_index(mine, which);
#pragma unroll
        for (int i = 0; i < Config::width; ++i)
          if (const i64 at = first + lane + 32 * i - to; at >= 0 && at < slice)
            held[i] = body.reduce(held[i], body.update(begin + which, at));
      }
    }
#pragma unroll
    for (int i = 0; i < Config::width; ++i)
      if (first + lane + 32 * i < size)
        body.put(first + lane + 32 * i, held[i]);
  }
}
