#pragma once
// The rows of every expert, one expert after the other, each in order: what the blocks of the product after
// it share out. A block for each expert.

#include "expert.cuh"

/// `plan`: where each expert's rows begin, and the number of all; then the rows.
/// `Config`: threads.
template <class Config, class Routing>
DEVICE void expert_plan(const Routing &routing, i32 *plan) {
  constexpr int warps = Config::threads / 32;
  SHARED(i32, before, warps); ///< rows of earlier experts in a warp's part
  SHARED(i32, its, warps);    ///< rows of the block's
  const i64 expert = block_x(), rows = routing.rows();
  const int lane = (int)lane_id(), warp = (int)thread_x() / 32;
  const i64 part = ceil_div(ceil_div(rows, warps), 32) * 32, first = warp * part,
            last = first + part < rows ? first + part : rows;
  pdl_wait();
  pdl_launch_dependents();
  i32 earlier = 0, own = 0;
#pragma unroll 4
  for (i64 start = first; start < last; start += 32) {
    const i64 row = start + lane;
    const i64 chosen = row < last ? expert_of(routing, row) : Routing::experts();
    earlier += bit_count(warp_ballot(chosen < expert));
    own += bit_count(warp_ballot(chosen == expert));
  }
  if (lane == 0) {
    before[warp] = earlier;
    its[warp] = own;
  }
  barrier();
  i32 begin = 0, place = 0, count = 0;
#pragma unroll 4
  for (int i = 0; i < warps; ++i) {
    begin += before[i];
    count += its[i];
    place += i < warp ? its[i] : 0;
  }
  if (thread_x() == 0) {
    store(plan + expert, begin);
    if (expert == Routing::experts() - 1)
      store(plan + expert + 1, begin + count);
  }
  i32 *to = plan + Routing::experts() + 1 + begin + place;
#pragma unroll 4
  for (i64 start = first; start < last; start += 32) {
    const i64 row = start + lane;
    const bool is_its = row < last && expert_of(routing, row) == expert;
    const u32 mask = warp_ballot(is_its);
    if (is_its)
      store(to + bit_count(mask & ((1u << lane) - 1u)), (i32)row);
    to += bit_count(mask);
  }
}
