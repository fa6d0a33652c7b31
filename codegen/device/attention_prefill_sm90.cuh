#pragma once
// Attention of many rows by warpgroups, on sm_90a: see attention_prefill.cuh. Four warps multiply 64 rows
// with tiles that the tensor cores read from shared memory themselves. row_tiles is 1.

#include "attention_prefill.cuh"
#include "wgmma.cuh"

template <class Config>
using PrefillSm90 = PrefillShape<Config, true>;

// Starts score = q*k of rows 64 * group ...
template <class Config, class T>
DEVICE void start_scores(f32 (&score)[Config::tile_keys / 8][4], const T *query_tile, const T *key_tile,
                         int group) {
  using Shape = PrefillSm90<Config>;
  constexpr int query_panel = 64 * Shape::rows, key_panel = 64 * Config::tile_keys;
  warpgroup_arrive();
#pragma unroll
  for (int k = 0; k < Shape::depth; k += 16)
    wgmma_rows<T>(score,
                  wgmma_descriptor(query_tile + k / 64 * query_panel + group * 4096 + k % 64,
                                   2 * query_panel),
                  wgmma_descriptor(key_tile + k / 64 * key_panel + k % 64, 2 * key_panel), k > 0);
  warpgroup_commit();
}
// Starts acc_o += P*V.
template <class Config, class T, int Fragments>
DEVICE void start_values(f32 (&acc_o)[Fragments][4], u32 (&weight)[Config::tile_keys / 16][4],
                         const T *value_tile) {
  fence_operand(weight);
  fence_operand(acc_o);
  warpgroup_arrive();
#pragma unroll
  for (int k = 0; k < Config::tile_keys / 16; ++k)
    wgmma_columns<T>(acc_o, weight[k], wgmma_descriptor(value_tile + k * 1024, 128 * Config::tile_keys));
  warpgroup_commit();
}

template <class Config, class Body>
DEVICE void multiply_tile_sm90(const Body &body, const RowTile<int> &tile) {
  using T = typename Config::Query;
  using Shape = PrefillSm90<Config>;
  T *const query_tile = reinterpret_cast<T *>(dynamic_shared());
  if constexpr (is_bounded<Config> || is_paged<Config>)
    pdl_wait();
  const KeyRange<int> range = key_range<Config>(body, tile, Shape::rows);
  const int first = range.first, end = range.end;
  pdl_wait();
  pdl_launch_dependents();
  const KeyTiles<Config, Shape, T> tiles = key_tiles<Config, Shape>(body, tile, end, query_tile);
  copy_queries<Config, Shape>(query_tile, body, tile);
  tiles.copy(first, 0);
  cp_async_commit();
  PrefillSoftmax<Config, Shape, T> softmax;
  softmax.start();
  int stage = 0;
  for (int j0 = first; j0 < end; j0 += Config::tile_keys, stage ^= 1) {
    cp_async_wait<0>();
    fence_proxy_async();
    barrier();
    f32 score[1][Config::tile_keys / 8][4];
    start_scores<Config>(score[0], query_tile, tiles.keys + stage * Shape::key_tile,
                         warp_of_block() / 4);
    // The next tiles are loaded while the wgmma runs.
    if (j0 + Config::tile_keys < end)
      tiles.copy(j0 + Config::tile_keys, stage ^ 1);
    cp_async_commit();
    warpgroup_wait<0>();
    fence_operand(score[0]);
    finish_tile<Config>(score, body, tile, range, j0);
    softmax.add(score);
    start_values<Config>(softmax.acc_o[0], softmax.weight[0], tiles.values + stage * Shape::value_tile);
    warpgroup_wait<0>();
    fence_operand(softmax.acc_o[0]);
  }
  softmax.store(body, tile);
}

template <class Config, class Body>
DEVICE void attention_prefill_sm90(const Body &body) {
  for_each_tile<Config, PrefillSm90<Config>::rows>(
      body, [&](const RowTile<int> &tile) { multiply_tile_sm90<Config>(body, tile); });
}
