#pragma once
// The largest of a row that a warp holds, and the groups that have the largest.

#include "math.cuh"

/// Ordered as the numbers are, a NaN above all; never 0.
DEVICE u32 order_of(f32 value) {
  const u32 bits = bits_of(value + 0.f); // -0 is 0
  return is_nan(value) ? ~0u : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Batcher's network, for sort_falling(). Numbers from Held on are not there, and less than all.
template <int Low, int High, int Held>
DEVICE void exchange(u64 (&key)[Held]) {
  if constexpr (High < Held) {
    const u64 low = key[Low], high = key[High];
    key[Low] = low < high ? high : low;
    key[High] = low < high ? low : high;
  }
}
template <int First, int Last, int Step, int Held>
DEVICE void exchange_neighbours(u64 (&key)[Held]) {
  if constexpr (First + Step < Last) {
    exchange<First, First + Step>(key);
    exchange_neighbours<First + 2 * Step, Last, Step>(key);
  }
}
template <int First, int Size, int Step, int Held>
DEVICE void merge_falling(u64 (&key)[Held]) {
  if constexpr (2 * Step < Size) {
    merge_falling<First, Size, 2 * Step>(key);
    merge_falling<First + Step, Size, 2 * Step>(key);
    exchange_neighbours<First + Step, First + Size, Step>(key);
  } else {
    exchange<First, First + Step>(key);
  }
}
/// Size of the numbers from First on, a power of two, in falling order.
template <int First, int Size, int Held>
DEVICE void sort_falling(u64 (&key)[Held]) {
  if constexpr (Size > 1 && First < Held) {
    sort_falling<First, Size / 2>(key);
    sort_falling<First + Size / 2, Size / 2>(key);
    merge_falling<First, Size, 1>(key);
  }
}

/// The places of the Count largest of a warp's scores, the first of equal ones first: lane r gets that of
/// rank r. Lane l holds those of the places l, l + 32, ..., of which there are Width. Each lane sorts its
/// own, so that a round of the warp looks at one of each lane.
template <int Width, int Count, int Held>
DEVICE i32 largest_places(const f32 (&score)[Held]) {
  static_assert(Held <= 32 && Count <= 32 && Count <= Width, "a lane for each rank");
  constexpr int kept = Held < Count ? Held : Count;
  constexpr int size = Held > 16 ? 32 : Held > 8 ? 16 : Held > 4 ? 8 : Held > 2 ? 4 : Held;
  const int lane = (int)lane_id();
  u64 key[Held]; // the score, then the place, the first one the largest; 0: taken, or not there
#pragma unroll
  for (int i = 0; i < Held; ++i)
    key[i] = Width % 32 == 0 || lane + 32 * i < Width
                 ? (u64)order_of(score[i]) << 32 | (u32) ~(u32)(lane + 32 * i)
                 : 0u;
  sort_falling<0, size>(key);
  i32 place = 0;
#pragma unroll
  for (int rank = 0; rank < Count; ++rank) {
    const u32 mine = (u32)(key[0] >> 32), best = warp_largest(mine);
    bool has_it = mine == best;
    u32 holders = warp_ballot(has_it);
    if (bit_count(holders) > 1) { // the same score in several lanes
      const u32 first = warp_largest(has_it ? (u32)key[0] : 0u);
      has_it = has_it && (u32)key[0] == first;
      holders = warp_ballot(has_it);
    }
    const u32 at = ~shuffle_index((u32)key[0], first_bit(holders));
    place = lane == rank ? (i32)at : place;
#pragma unroll
    for (int i = 0; i < kept; ++i)
      key[i] = !has_it ? key[i] : i + 1 < kept ? key[i + 1 < kept ? i + 1 : i] : 0u;
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
