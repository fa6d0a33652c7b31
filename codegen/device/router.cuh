#pragma once
// Which experts a row is routed to, and with which weights: a warp holds the row's scores.

#include "largest_places.cuh"
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
template <class Config, class = void>
constexpr bool limits_groups = false;
template <class Config>
constexpr bool limits_groups<Config, typename RouterFlag<(Config::groups > 0)>::type> = true;
template <class Config, class = void>
constexpr bool limits_weights = false;
template <class Config>
constexpr bool limits_weights<Config, typename RouterFlag<(Config::limits_weights, true)>::type> =
    Config::limits_weights;

/// `Config`:
///   threads, width     of a block; scores of a row
///   count              the largest of them are taken, at most 32
///   softmax            of the scores comes first
///   weights            what becomes of those taken
///   has_bias           the choice is by choice(place, score) of Body; may be left out
///   has_divisor        weights are divided by divisor(sum) of Body; may be left out
///   groups             the choice is from the best of them, with what limit_groups needs; may be left out:
///                      Body::other() is the score of the others
///   limits_weights     and the weights are `other` too where the group is another; may be left out
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
  if constexpr (has_bias<Config> || limits_groups<Config>) {
    f32 choice[held];
#pragma unroll
    for (int i = 0; i < held; ++i)
      if constexpr (has_bias<Config>)
        choice[i] = body.choice(is_there(i) ? lane + 32 * i : 0, score[i]);
      else
        choice[i] = score[i];
    if constexpr (limits_groups<Config>)
      limit_groups<Config>(choice, body.other());
    place = largest_places<Config::width, Config::count>(choice);
    if constexpr (limits_weights<Config>) {
#pragma unroll
      for (int i = 0; i < held; ++i)
        score[i] = choice[i];
    }
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
