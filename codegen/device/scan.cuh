#pragma once

#include "clusters.cuh"
#include "math.cuh"
#include "vectors.cuh"

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

// The one that is above; of equal ones either.
template <class T> DEVICE T upper_of(T a, T b) {
  if constexpr (same_type<T, f32>)
    return max_nan(a, b);
  else
    return is_above(b, a) ? b : a;
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
  // Neighbours, from `at` on. Seldom is one of them above what there is: their largest alone is compared.
  template <int N> DEVICE void offer(const Held (&candidates)[N], i64 at) {
    Held top = candidates[0];
#pragma unroll
    for (int i = 1; i < N; ++i)
      top = upper_of(top, candidates[i]);
    if (place < 0 || is_above(top, value)) {
#pragma unroll
      for (int i = 0; i < N; ++i)
        offer(candidates[i], at + i);
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

// The same for long rows: the Config::cluster blocks of a cluster share one. Config::width elements lie side
// by side: body.elements(at, held) loads them, of at most 16 bytes.
template <class Config, class Body> DEVICE void arg_max_of_block(Body body, i64 rows, i64 length) {
  using Held = typename Config::Held;
  using Best = Placed<Held>;
  constexpr u32 warps = Config::threads / 32, blocks = cluster_blocks<Config::cluster>;
  constexpr u32 words = sizeof(Best) / 4;
  // `batch`: vectors that a thread has on their way
  constexpr int width = Config::width, batch = width > 4 ? 4 : blocks > 1 ? 16 / width : 8 / width;
  constexpr i64 step = Config::threads * (i64)blocks * width;
  static_assert(warps <= 32 && blocks <= 32, "a warp looks at what all have found");
  SHARED(u32, of_warps, warps * words);
  SHARED(u32, of_blocks, blocks * words);
  const u32 rank = blocks > 1 ? cluster_rank() : 0;
  if (blocks < (u32)Config::cluster && block_x() % (u32)Config::cluster != 0)
    return;
  if constexpr (blocks > 1)
    cluster_arrive(); // all have started before any stores into another's memory
  pdl_wait();
  pdl_launch_dependents();
  if constexpr (blocks > 1)
    cluster_wait();
  auto largest_of = [](const u32 *parts, u32 count) {
    Best best;
    if (lane_id() < count)
      copy_bytes(&best, parts + lane_id() * words, sizeof(Best));
    return largest_of_warp(best);
  };
  for (i64 row = block_x() / (u32)Config::cluster; row < rows; row += grid_dim_x() / (u32)Config::cluster) {
    body.begin_row(row);
    Best best;
    for (i64 begin = (rank * (i64)Config::threads + thread_x()) * width; begin < length;
         begin += batch * step) {
      Held held[batch][width];
#pragma unroll
      for (int i = 0; i < batch; ++i)
        body.elements(begin + i * step < length ? begin + i * step : begin, held[i]);
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (begin + i * step < length)
          best.offer(held[i], begin + i * step);
    }
    best = largest_of_warp(best);
    if (lane_id() == 0)
      copy_bytes(of_warps + warp_id() * words, &best, sizeof(Best));
    barrier();
    if (warp_id() == 0)
      best = largest_of(of_warps, warps);
    if constexpr (blocks > 1) {
      u32 bits[words];
      copy_bytes(bits, &best, sizeof(Best));
      if (thread_x() == 0)
        for (u32 i = 0; i < words; ++i)
          store_in_cluster(of_blocks + rank * words + i, 0, bits[i]);
      cluster_arrive();
      cluster_wait();
      if (rank == 0 && warp_id() == 0)
        best = largest_of(of_blocks, blocks);
    }
    if (rank == 0 && thread_x() == 0)
      body.put(row, best.place < 0 ? 0 : best.place);
    if constexpr (blocks > 1) {
      cluster_arrive();
      cluster_wait();
    } else {
      barrier();
    }
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
