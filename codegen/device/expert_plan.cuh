#pragma once
// The rows of every expert, one expert after the other: what the blocks of the product after it share out. A
// block for each expert.

#include "expert.cuh"

/// `plan`: where each expert's rows begin, and the number of all; a counter for the product, which leaves it
/// 0 as it is here; then the rows. Those of an expert are in the same order in every run. `Config`: threads.
template <class Config, class Routing>
DEVICE void expert_plan(const Routing &routing, i32 *plan) {
  constexpr int threads = Config::threads, warps = threads / 32, kept = 32;
  SHARED(i32, before, warps); ///< rows of earlier experts that a warp has seen
  SHARED(i32, its, warps);    ///< rows of the block's
  const i32 expert = (i32)block_x(), experts = (i32)Routing::experts();
  const i32 rows = (i32)routing.rows(), lane = (i32)lane_id(), warp = (i32)thread_x() / 32;
  pdl_wait();
  pdl_launch_dependents();
  i32 earlier = 0;
  // Which of `kept` rows from `start` on, `threads` apart, are the expert's.
  auto look = [&](i32 start) {
    u32 mine = 0;
#pragma unroll
    for (i32 i = 0; i < kept; ++i) {
      const i32 row = start + i * threads;
      const i32 chosen = row < rows ? (i32)expert_of(routing, row) : experts;
      earlier += chosen < expert;
      mine |= (u32)(chosen == expert) << i;
    }
    return mine;
  };
  auto sum_of_warp = [](i32 value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
      value += shuffle_xor(value, mask);
    return value;
  };
  const i32 first = (i32)thread_x(), round = kept * threads;
  const u32 of_first = look(first);
  for (i32 start = first + round; start - first < rows; start += round)
    look(start);
  earlier = sum_of_warp(earlier);
  if (lane == 0)
    before[warp] = earlier;
  barrier();
  i32 end = 0;
#pragma unroll 8
  for (int i = 0; i < warps; ++i)
    end += before[i];
  if (first == 0)
    store(plan + expert, end);
  i32 *const list = plan + experts + 2;
  for (i32 start = first; start - first < rows; start += round) {
    u32 mine = start == first ? of_first : look(start);
    i32 ahead = bit_count(mine); // of the warp's lanes up to this one
    const i32 own = ahead;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
      const i32 other = shuffle_up(ahead, (u32)delta);
      ahead += lane >= delta ? other : 0;
    }
    if (lane == 31)
      its[warp] = ahead;
    barrier();
    i32 to = end + ahead - own;
#pragma unroll 8
    for (int i = 0; i < warps; ++i) {
      to += i < warp ? its[i] : 0;
      end += its[i];
    }
    for (i32 row = start; mine != 0; mine >>= 1, row += threads)
      if (mine & 1u)
        store(list + to++, row);
    barrier();
  }
  if (first == 0 && expert == experts - 1) {
    store(plan + expert + 1, end);
    store(plan + expert + 2, 0);
  }
}
