#pragma once
// Merges what several clusters of attention_latent.cuh found of a tile of rows. A block takes a row, four
// columns a thread. A Config also has `splits`, the clusters.

#include "latent_tiles.cuh"

template <class Config, class Body>
DEVICE void attention_latent_merge(const Body &body, const i32 *scratch) {
  using Partial = LatentPartial<Config, const f32>;
  constexpr int splits = Config::splits;
  pdl_wait();
  pdl_launch_dependents();
  const u32 number = block_x() / (u32)Partial::rows; // of the tile
  const int line = (int)(block_x() % (u32)Partial::rows);
  const RowTile<int> tile = row_tile<int>(body, number, Partial::rows);
  const int row = tile.row0 + line, column = (int)thread_x() * 4;
  if (row > tile.last_row)
    return;
  auto partial = [&](int split) {
    return Partial(reinterpret_cast<const f32 *>(scratch), (i64)number * splits + split);
  };
  f32 factor[splits], largest = -inf_f32(), sum = 0.f;
#pragma unroll
  for (int s = 0; s < splits; ++s) {
    factor[s] = partial(s).row_max[line];
    largest = max_nan(largest, factor[s]);
  }
#pragma unroll
  for (int s = 0; s < splits; ++s) {
    factor[s] = weight_of(factor[s], largest);
    sum = sum + factor[s] * partial(s).row_sum[line];
  }
  const i64 head = head_of(body, tile, row);
  const f32 inverse = inverse_row_sum<Config>(body, tile.entry, head, largest, sum);
  Vec<f32, 4> result = {};
#pragma unroll
  for (int s = 0; s < splits; ++s) {
    const auto part = load_vec<f32, 4>(partial(s).acc_o + line * Config::value_depth + column);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      result[e] = result[e] + part[e] * factor[s];
  }
#pragma unroll
  for (int e = 0; e < 4; ++e)
    result[e] = result[e] * inverse;
  body.store(tile.entry, head, query_of(body, row), column, result);
}
