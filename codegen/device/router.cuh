#pragma once
// Which experts a row is routed to, and with which weights: a warp holds the row's scores.

#include "reduce.cuh"
#include "scan.cuh"

enum class Weights {
  AsTheyAre,
  Divided, ///< by their sum
  Softmax,
};

/// `Config`:
///   threads, width     of a block; scores of a row
///   count              the largest of them are taken, at most 32
///   softmax            of the scores comes first
///   weights            what becomes of those taken
/// Body: begin_row(row); element(at), a score; put(row, rank, place) and put_weight(row, rank, weight) store
/// one.
template <class Config, class Body>
DEVICE void router(Body body, i64 rows) {
  constexpr int warps = Config::threads / 32, held = (Config::width + 31) / 32, none = Config::width;
  const int lane = (int)lane_id();
  pdl_wait();
  pdl_launch_dependents();
  const i64 row = (i64)block_x() * warps + warp_id();
  if (row >= rows)
    return;
  body.begin_row(row);
  f32 score[held];
  u32 left = 0; // which of them have not been taken
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const bool inside = Config::width % 32 == 0 || lane + 32 * i < Config::width;
    score[i] = body.element(inside ? lane + 32 * i : 0);
    left |= inside ? 1u << i : 0u;
  }
  if constexpr (Config::softmax) {
    f32 largest = score[0], sum = 0.f;
#pragma unroll
    for (int i = 1; i < held; ++i)
      largest = max_nan(largest, score[i]);
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < held; ++i) {
      score[i] = (left >> i & 1u) != 0 ? exp_(score[i] - largest) : 0.f;
      sum += score[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < held; ++i)
      score[i] = score[i] / sum;
  }
  f32 weight = 0.f; // lane r has that of rank r
  i32 place = 0;
#pragma unroll
  for (int rank = 0; rank < Config::count; ++rank) {
    f32 best = 0.f;
    i32 at = none;
#pragma unroll
    for (int i = 0; i < held; ++i)
      if ((left >> i & 1u) != 0 && (at == none || is_above(score[i], best))) {
        best = score[i];
        at = lane + 32 * i;
      }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      const f32 other = shuffle_xor(best, mask);
      const i32 there = shuffle_xor(at, mask);
      if (there != none && (at == none || is_above(other, best) || (!is_above(best, other) && there < at))) {
        best = other;
        at = there;
      }
    }
    if (at % 32 == lane)
      left &= ~(1u << at / 32);
    if (lane == rank) {
      weight = best;
      place = at;
    }
  }
  const bool has_one = lane < Config::count;
  if constexpr (Config::weights == Weights::Softmax) {
    const f32 first = shuffle_index(weight, 0);
    const f32 largest = warp_max(has_one ? weight : first);
    weight = has_one ? exp_(weight - largest) : 0.f;
  }
  if constexpr (Config::weights != Weights::AsTheyAre)
    weight = weight / warp_sum(has_one ? weight : 0.f);
  if (has_one) {
    body.put(row, lane, place);
    body.put_weight(row, lane, weight);
  }
}
