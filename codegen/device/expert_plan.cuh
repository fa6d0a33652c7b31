#pragma once
// The rows of every expert, one expert after the other: what the blocks of the product after it share out. A
// block looks at all rows for some neighbouring experts.

#include "expert.cuh"

/// `plan`: where each expert's rows begin, and the number of all; a counter for the product, which leaves it
/// 0 as it is here; then the rows. Those of an expert are in the same order in every run. `Config`: threads;
/// experts_of_block.
template <class Config, class Routing>
DEVICE void expert_plan(const Routing &routing, i32 *plan) {
  constexpr int threads = Config::threads, warps = threads / 32, kept = 32, own = Config::experts_of_block;
  static_assert(warps == 32, "a lane for each warp");
  // Of each of the block's experts, and of all earlier ones, rows that a warp has; then those of the warps in
  // front of it, and of all.
  SHARED(i32, its, (own + 1) * warps);
  SHARED(i32, all, own + 1);
  const i32 experts = (i32)Routing::experts(), expert = (i32)block_x() * own;
  const i32 rows = (i32)routing.rows(), lane = (i32)lane_id(), warp = (i32)thread_x() / 32;
  pdl_wait();
  pdl_launch_dependents();
  struct Rows {
    u32 of[own]; ///< which of `kept` rows are each expert's
  };
  i32 earlier = 0;
  // Of `kept` rows from `start` on, `threads` apart.
  auto look = [&](i32 start) {
    Rows mine;
#pragma unroll
    for (int e = 0; e < own; ++e)
      mine.of[e] = 0;
#pragma unroll
    for (i32 i = 0; i < kept; ++i) {
      const i32 row = start + i * threads;
      const i32 chosen = row < rows ? (i32)expert_of(routing, row) : experts;
      earlier += chosen < expert;
#pragma unroll
      for (int e = 0; e < own; ++e)
        mine.of[e] |= (u32)(chosen == expert + e && chosen < experts) << i;
    }
    return mine;
  };
  auto before_in_warp = [&](i32 value) { // of the lanes in front
    i32 up_to = value;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
      const i32 other = shuffle_up(up_to, (u32)delta);
      up_to += lane >= delta ? other : 0;
    }
    return up_to - value;
  };
  // By all threads, with a number for each entry of `its`: those in front of the thread in its warp.
  auto before_in_block = [&](int entry, i32 value) {
    const i32 before = before_in_warp(value);
    if (lane == 31)
      its[entry * warps + warp] = before + value;
    return before;
  };
  auto add_up = [&] {
    barrier();
    if (warp <= own) {
      const i32 value = its[warp * warps + lane], before = before_in_warp(value);
      its[warp * warps + lane] = before;
      if (lane == 31)
        all[warp] = before + value;
    }
    barrier();
  };
  const i32 first = (i32)thread_x(), round = kept * threads;
  const Rows of_first = look(first);
  i32 count[own]; // of the thread's rows in all rounds
#pragma unroll
  for (int e = 0; e < own; ++e)
    count[e] = bit_count(of_first.of[e]);
  for (i32 start = first + round; start - first < rows; start += round) {
    const Rows mine = look(start);
#pragma unroll
    for (int e = 0; e < own; ++e)
      count[e] += bit_count(mine.of[e]);
  }
  before_in_block(own, earlier);
#pragma unroll
  for (int e = 0; e < own; ++e)
    before_in_block(e, count[e]);
  add_up();
  i32 end[own]; // where the rows of the next round go, for each expert
  i32 next = all[own];
#pragma unroll
  for (int e = 0; e < own; ++e) {
    end[e] = next;
    next += all[e];
    if (first == 0 && expert + e < experts) {
      store(plan + expert + e, end[e]);
      if (expert + e == experts - 1) {
        store(plan + experts, next);
        store(plan + experts + 1, 0);
      }
    }
  }
  i32 *const list = plan + experts + 2;
  for (i32 start = first; start - first < rows; start += round) {
    const Rows mine = start == first ? of_first : look(start);
    i32 ahead[own]; // of the round's rows, those of threads in front
    barrier();
#pragma unroll
    for (int e = 0; e < own; ++e)
      ahead[e] = before_in_block(e, bit_count(mine.of[e]));
    add_up();
#pragma unroll
    for (int e = 0; e < own; ++e) {
      i32 to = end[e] + its[e * warps + warp] + ahead[e];
      end[e] += all[e];
      u32 left = mine.of[e];
      for (i32 row = start; left != 0; left >>= 1, row += threads)
        if (left & 1u)
          store(list + to++, row);
    }
  }
}
