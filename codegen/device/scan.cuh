#pragma once

#include "math.cuh"

// Ops along one axis: each warp walks a row of `length` elements.
//
// Config: threads   of a block
//         Held      the type in which an element is held
// Body:   begin_row(i64 row)   sets members that say where the row lies
//         element(i64 at)      element `at` of the row, as Held

// Running sums. Config::reverse: from the end; Config::exclusive: without the element itself. put(at, sum)
// stores one.
template <class Config, class Body> DEVICE void running_sum(Body body, i64 rows, i64 length) {
  using Held = typename Config::Held;
  constexpr u32 warps = Config::threads / 32;
  pdl_wait();
  pdl_launch_dependents();
  const u32 lane = lane_id();
  for (i64 row = (i64)block_x() * warps + warp_id(); row < rows; row += (i64)grid_dim_x() * warps) {
    body.begin_row(row);
    Held carried = 0;
    for (i64 begin = 0; begin < length; begin += 32) {
      const i64 step = begin + lane, at = Config::reverse ? length - 1 - step : step;
      const bool inside = step < length;
      Held running = 0;
      if (inside)
        running = body.element(at);
      for (u32 distance = 1; distance < 32; distance *= 2) {
        const Held earlier = shuffle_up(running, distance);
        if (lane >= distance)
          running = running + earlier;
      }
      running = carried + running;
      Held result = running;
      if constexpr (Config::exclusive) {
        const Held before = shuffle_up(running, 1);
        result = lane == 0 ? carried : before;
      }
      if (inside)
        body.put(at, result);
      carried = shuffle_index(running, 31);
    }
  }
}

// A NaN is above all others.
template <class T> DEVICE bool is_above(T a, T b) {
  if constexpr (is_wide_float<T>)
    return a > b || (is_nan(a) && !is_nan(b));
  else
    return a > b;
}

// An element and its place in the row; a place below 0 is none.
template <class Held> struct Placed {
  Held value = 0;
  i64 place = -1;

  DEVICE void offer(Held candidate, i64 at) {
    if (place < 0 || is_above(candidate, value)) {
      value = candidate;
      place = at;
    }
  }
};

// The largest of a warp's, in every lane; of equal ones that of the first place.
template <class Held> DEVICE Placed<Held> largest_of_warp(Placed<Held> best) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const Held other = shuffle_xor(best.value, mask);
    const i64 otherPlace = shuffle_xor(best.place, mask);
    const bool larger = is_above(other, best.value), smaller = is_above(best.value, other);
    if (otherPlace >= 0 && (best.place < 0 || larger || (!smaller && otherPlace < best.place))) {
      best.value = other;
      best.place = otherPlace;
    }
  }
  return best;
}

// The place of the largest element; of equal ones the first, 0 in empty rows. put(row, place) stores it.
template <class Config, class Body> DEVICE void arg_max(Body body, i64 rows, i64 length) {
  using Held = typename Config::Held;
  constexpr u32 warps = Config::threads / 32;
  pdl_wait();
  pdl_launch_dependents();
  for (i64 row = (i64)block_x() * warps + warp_id(); row < rows; row += (i64)grid_dim_x() * warps) {
    body.begin_row(row);
    Placed<Held> best;
    for (i64 at = lane_id(); at < length; at += 32)
      best.offer(body.element(at), at);
    best = largest_of_warp(best);
    if (lane_id() == 0)
      body.put(row, best.place < 0 ? 0 : best.place);
  }
}

// The same for long rows: a block takes one.
template <class Config, class Body> DEVICE void arg_max_of_block(Body body, i64 rows, i64 length) {
  using Held = typename Config::Held;
  constexpr u32 warps = Config::threads / 32;
  constexpr i64 batch = 8, step = Config::threads; // `batch`: elements that a thread has on their way
  SHARED(Held, values, warps);
  SHARED(i64, places, warps);
  pdl_wait();
  pdl_launch_dependents();
  for (i64 row = block_x(); row < rows; row += grid_dim_x()) {
    body.begin_row(row);
    Placed<Held> best;
    for (i64 begin = thread_x(); begin < length; begin += batch * step) {
      Held element[batch];
#pragma unroll
      for (i64 i = 0; i < batch; ++i)
        element[i] = body.element(begin + i * step < length ? begin + i * step : begin);
#pragma unroll
      for (i64 i = 0; i < batch; ++i)
        if (begin + i * step < length)
          best.offer(element[i], begin + i * step);
    }
    best = largest_of_warp(best);
    if (lane_id() == 0) {
      values[warp_id()] = best.value;
      places[warp_id()] = best.place;
    }
    barrier();
    if (warp_id() == 0) {
      const bool has_one = lane_id() < warps;
      best.value = values[has_one ? lane_id() : 0];
      best.place = has_one ? places[lane_id()] : -1;
      best = largest_of_warp(best);
      if (lane_id() == 0)
        body.put(row, best.place < 0 ? 0 : best.place);
    }
    barrier();
  }
}

template <class Config, class Body> DEVICE void top_k_held(const Body &body, i64 row, i64 length, i64 count) {
  using Held = typename Config::Held;
  Held mine[Config::held];
  u32 left = 0; // which of them have not been taken
#pragma unroll
  for (int i = 0; i < Config::held; ++i)
    if (const i64 at = lane_id() + 32 * i; at < length) {
      mine[i] = body.element(at);
      left |= 1u << i;
    }
  for (i64 rank = 0; rank < count; ++rank) {
    Placed<Held> best;
#pragma unroll
    for (int i = 0; i < Config::held; ++i)
      if ((left >> i & 1u) != 0)
        best.offer(mine[i], lane_id() + 32 * i);
    best = largest_of_warp(best);
    if (best.place % 32 == lane_id())
      left &= ~(1u << best.place / 32);
    if (lane_id() == 0)
      body.put(row, rank, best.place);
  }
}

// The places of the `count` largest elements, the largest first; of equal ones in their order. put(row, rank,
// place) stores one. Config::held: elements of a row that a lane holds, if all fit. Else the row is walked
// again each time for the largest of those that come after the last one.
template <class Config, class Body> DEVICE void top_k(Body body, i64 rows, i64 length, i64 count) {
  using Held = typename Config::Held;
  constexpr u32 warps = Config::threads / 32;
  pdl_wait();
  pdl_launch_dependents();
  for (i64 row = (i64)block_x() * warps + warp_id(); row < rows; row += (i64)grid_dim_x() * warps) {
    body.begin_row(row);
    if constexpr (Config::held > 0) {
      top_k_held<Config>(body, row, length, count);
      continue;
    }
    Placed<Held> last;
    for (i64 rank = 0; rank < count; ++rank) {
      Placed<Held> best;
      for (i64 at = lane_id(); at < length; at += 32) {
        const Held candidate = body.element(at);
        if (rank == 0 || is_above(last.value, candidate) ||
            (!is_above(candidate, last.value) && at > last.place))
          best.offer(candidate, at);
      }
      last = largest_of_warp(best);
      if (lane_id() == 0)
        body.put(row, rank, last.place);
    }
  }
}
