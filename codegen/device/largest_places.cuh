#pragma once
// The largest of a row that a warp holds, and the groups that have the largest.

#include "math.cuh"

/// Ordered as the numbers are, a NaN above all; never 0.
DEVICE u32 order_of(f32 value) {
  const u32 bits = bits_of(value + 0.f); // -0 is 0
  return is_nan(value) ? ~0u : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

/// The places of the Count largest of a warp's scores, the first of equal ones first: lane r gets that of
/// rank r. Lane l holds those of the places l, l + 32, ..., of which there are Width.
template <int Width, int Count, int Held>
DEVICE i32 largest_places(const f32 (&score)[Held]) {
  const int lane = (int)lane_id();
  u32 order[Held]; // 0: taken, or not there
#pragma unroll
  for (int i = 0; i < Held; ++i)
    order[i] = Width % 32 == 0 || lane + 32 * i < Width ? order_of(score[i]) : 0u;
  i32 place = 0;
#pragma unroll
  for (int rank = 0; rank < Count; ++rank) {
    u32 best = order[0];
#pragma unroll
    for (int i = 1; i < Held; ++i)
      best = order[i] > best ? order[i] : best;
    best = warp_largest(best);
    u32 at = ~0u;
#pragma unroll
    for (int i = Held - 1; i >= 0; --i)
      at = order[i] == best ? (u32)(lane + 32 * i) : at;
    at = warp_least(at);
#pragma unroll
    for (int i = 0; i < Held; ++i)
      order[i] = at == (u32)(lane + 32 * i) ? 0u : order[i];
    place = lane == rank ? (i32)at : place;
  }
  return place;
}

/// The number that order_of made `order` of.
DEVICE f32 of_order(u32 order) { return f32_of_bits((order >> 31) != 0 ? order ^ 0x80000000u : ~order); }

/// Elements of other groups than the best ones become `other`. A warp holds a row as in largest_places.
/// `Config`:
///   width              elements of a row
///   groups             of neighbours, of one size, at most 32
///   summed             of the largest elements of a group are its score
///   kept               groups with the largest scores keep their elements
template <class Config, int Held>
DEVICE void limit_groups(f32 (&score)[Held], f32 other) {
  constexpr int groups = Config::groups, size = Config::width / groups;
  static_assert(groups <= 32 && size * groups == Config::width, "a lane has the score of a group");
  const int lane = (int)lane_id();
  u32 order[Held]; // 0: added, or not there
#pragma unroll
  for (int i = 0; i < Held; ++i)
    order[i] = lane + 32 * i < Config::width ? order_of(score[i]) : 0u;
  f32 mine[1] = {};
#pragma unroll
  for (int group = 0; group < groups; ++group) {
    auto is_inside = [&](int i) { // two comparisons that the compiler knows, where a group is of whole warps
      return 32 * i + 31 >= group * size && 32 * i < (group + 1) * size && lane + 32 * i >= group * size &&
             lane + 32 * i < (group + 1) * size;
    };
    f32 sum = 0.f;
#pragma unroll
    for (int rank = 0; rank < Config::summed; ++rank) {
      u32 best = 0;
#pragma unroll
      for (int i = 0; i < Held; ++i)
        best = is_inside(i) && order[i] > best ? order[i] : best;
      best = warp_largest(best);
      sum = rank == 0 ? of_order(best) : sum + of_order(best);
      if (rank + 1 == Config::summed)
        break;
      u32 at = ~0u;
#pragma unroll
      for (int i = Held - 1; i >= 0; --i)
        at = is_inside(i) && order[i] == best ? (u32)(lane + 32 * i) : at;
      at = warp_least(at);
#pragma unroll
      for (int i = 0; i < Held; ++i)
        order[i] = at == (u32)(lane + 32 * i) ? 0u : order[i];
    }
    mine[0] = lane == group ? sum : mine[0];
  }
  const i32 place = largest_places<groups, Config::kept>(mine);
  u32 kept = 0;
#pragma unroll
  for (int rank = 0; rank < Config::kept; ++rank)
    kept |= 1u << shuffle_index(place, rank);
#pragma unroll
  for (int i = 0; i < Held; ++i)
    score[i] = (kept >> (lane + 32 * i) / size & 1u) != 0 ? score[i] : other;
}

/// A warp limits a row. Body: begin_row(row); element(at); other(); put(at, element).
template <class Config, class Body>
DEVICE void limit_rows(Body body, i64 rows, i64 length) {
  constexpr u32 warps = Config::threads / 32;
  constexpr int held = (Config::width + 31) / 32;
  (void)length; // Config::width
  pdl_wait();
  pdl_launch_dependents();
  const int lane = (int)lane_id();
  for (i64 row = (i64)block_x() * warps + warp_id(); row < rows; row += (i64)grid_dim_x() * warps) {
    body.begin_row(row);
    f32 element[held];
#pragma unroll
    for (int i = 0; i < held; ++i)
      element[i] = body.element(lane + 32 * i < Config::width ? lane + 32 * i : 0);
    limit_groups<Config>(element, body.other());
#pragma unroll
    for (int i = 0; i < held; ++i)
      if (lane + 32 * i < Config::width)
        body.put(lane + 32 * i, element[i]);
  }
}
