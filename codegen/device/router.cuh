#pragma once
// Which experts a row is routed to, and with which weights: a warp holds the row's scores.

#include "reduce.cuh"
#include "scan.cuh"

enum class Weights {
  AsTheyAre,
  Divided, ///< by their sum
  Softmax,
};

template <bool>
struct RouterFlag {
  using type = void;
};
template <class Config, class = void>
constexpr bool has_bias = false;
template <class Config>
constexpr bool has_bias<Config, typename RouterFlag<(Config::has_bias, true)>::type> = Config::has_bias;
template <class Config, class = void>
constexpr bool has_divisor = false;
template <class Config>
constexpr bool has_divisor<Config, typename RouterFlag<(Config::has_divisor, true)>::type> =
    Config::has_divisor;

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

/// `Config`:
///   threads, width     of a block; scores of a row
///   count              the largest of them are taken, at most 32
///   softmax            of the scores comes first
///   weights            what becomes of those taken
///   has_bias           the choice is by choice(place, score) of Body; may be left out
///   has_divisor        weights are divided by divisor(sum) of Body; may be left out
/// Body: put(row, rank, place) and put_weight(row, rank, weight) store one.
/// A warp routes a row; read(at) is a score.
template <class Config, class Body, class Read>
DEVICE void route_row(const Body &body, i64 row, const Read &read) {
  constexpr int held = (Config::width + 31) / 32;
  const int lane = (int)lane_id();
  auto is_there = [&](int i) { return Config::width % 32 == 0 || lane + 32 * i < Config::width; };
  f32 score[held];
#pragma unroll
  for (int i = 0; i < held; ++i)
    score[i] = read(is_there(i) ? lane + 32 * i : 0);
  if constexpr (Config::softmax) {
    f32 largest = score[0], sum = 0.f;
#pragma unroll
    for (int i = 1; i < held; ++i)
      largest = max_nan(largest, score[i]);
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < held; ++i) {
      score[i] = is_there(i) ? exp_(score[i] - largest) : 0.f;
      sum += score[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < held; ++i)
      score[i] = score[i] / sum;
  }
  i32 place;
  if constexpr (has_bias<Config>) {
    f32 choice[held];
#pragma unroll
    for (int i = 0; i < held; ++i)
      choice[i] = body.choice(is_there(i) ? lane + 32 * i : 0, score[i]);
    place = largest_places<Config::width, Config::count>(choice);
  } else {
    place = largest_places<Config::width, Config::count>(score);
  }
  f32 weight = 0.f;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const f32 other = shuffle_index(score[i], place % 32);
    weight = place / 32 == i ? other : weight;
  }
  const bool has_one = lane < Config::count;
  if constexpr (Config::weights == Weights::Softmax) {
    const f32 first = shuffle_index(weight, 0);
    const f32 largest = warp_max(has_one ? weight : first);
    weight = has_one ? exp_(weight - largest) : 0.f;
  }
  if constexpr (Config::weights != Weights::AsTheyAre) {
    const f32 sum = warp_sum(has_one ? weight : 0.f);
    if constexpr (has_divisor<Config>)
      weight = weight / body.divisor(sum);
    else
      weight = weight / sum;
  }
  if (has_one) {
    body.put(row, lane, place);
    body.put_weight(row, lane, weight);
  }
}

/// Body also: begin_row(row); element(at), a score.
template <class Config, class Body>
DEVICE void router(Body body, i64 rows) {
  constexpr int warps = Config::threads / 32;
  pdl_wait();
  pdl_launch_dependents();
  const i64 row = (i64)block_x() * warps + warp_id();
  if (row >= rows)
    return;
  body.begin_row(row);
  route_row<Config>(body, row, [&](i64 at) { return body.element(at); });
}
