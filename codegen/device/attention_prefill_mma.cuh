#pragma once
// Attention of many rows by mma.sync: see attention_prefill.cuh.

#include "attention_prefill.cuh"

template <class Config>
using PrefillMma = PrefillShape<Config, false>;

// score = q*k. The two pointers are where this lane points ldmatrix to.
template <class Config, class T>
DEVICE void multiply_keys(f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4], const T *queries,
                          const T *keys) {
  constexpr int pitch = PrefillMma<Config>::key_pitch;
#pragma unroll
  for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
    for (int n = 0; n < Config::tile_keys / 8; ++n)
      score[m][n][0] = score[m][n][1] = score[m][n][2] = score[m][n][3] = 0.f;
#pragma unroll
  for (int k = 0; k < PrefillMma<Config>::depth; k += 16) {
    u32 query[Config::row_tiles][4];
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
      ldmatrix_x4(query[m], queries + m * 16 * pitch + k);
#pragma unroll
    for (int n = 0; n < Config::tile_keys / 8; n += 2) {
      u32 key[4];
      ldmatrix_x4(key, keys + n * 8 * pitch + k);
      const u32 first[2] = {key[0], key[1]}, second[2] = {key[2], key[3]};
#pragma unroll
      for (int m = 0; m < Config::row_tiles; ++m) {
        mma_m16n8k16(score[m][n], query[m], first, T());
        mma_m16n8k16(score[m][n + 1], query[m], second, T());
      }
    }
  }
}
// acc_o += P*V
template <class Config, class T, int Fragments>
DEVICE void multiply_values(f32 (&acc_o)[Config::row_tiles][Fragments][4],
                            const u32 (&weight)[Config::row_tiles][Config::tile_keys / 16][4],
                            const T *values) {
#pragma unroll
  for (int k = 0; k < Config::tile_keys / 16; ++k)
#pragma unroll
    for (int n = 0; n < Fragments; n += 2) {
      u32 value[4];
      ldmatrix_x4_trans(value, values + k * 16 * PrefillMma<Config>::value_pitch + n * 8);
      const u32 first[2] = {value[0], value[1]}, second[2] = {value[2], value[3]};
#pragma unroll
      for (int m = 0; m < Config::row_tiles; ++m) {
        mma_m16n8k16(acc_o[m][n], weight[m][k], first, T());
        mma_m16n8k16(acc_o[m][n + 1], weight[m][k], second, T());
      }
    }
}

template <class Config, class Body>
DEVICE void multiply_tile_mma(const Body &body, const RowTile<int> &tile) {
  using T = typename Config::Query;
  using Shape = PrefillMma<Config>;
  T *const query_tile = reinterpret_cast<T *>(dynamic_shared());
  if constexpr (is_bounded<Config> || is_paged<Config>)
    pdl_wait();
  const KeyRange<int> range = key_range<Config>(body, tile, Shape::rows);
  const int first = range.first, end = range.end, lane = lane_of_warp();
  pdl_wait();
  pdl_launch_dependents();
  const KeyTiles<Config, Shape, T> tiles = key_tiles<Config, Shape>(body, tile, end, query_tile);
  copy_queries<Config, Shape>(query_tile, body, tile);
  tiles.copy(first, 0);
  cp_async_commit();
  PrefillSoftmax<Config, Shape, T> softmax;
  softmax.start();
  const T *const query_place =
      query_tile + (warp_of_block() * Config::row_tiles * 16 + lane % 16) * Shape::key_pitch + lane / 16 * 8;
  int stage = 0;
  for (int j0 = first; j0 < end; j0 += Config::tile_keys, stage ^= 1) {
    cp_async_wait<0>();
    barrier();
    if (j0 + Config::tile_keys < end)
      tiles.copy(j0 + Config::tile_keys, stage ^ 1);
    cp_async_commit();
    f32 score[Config::row_tiles][Config::tile_keys / 8][4];
    multiply_keys<Config>(score, query_place,
                          tiles.keys + stage * Shape::key_tile +
                              (lane / 16 * 8 + lane % 8) * Shape::key_pitch + lane / 8 % 2 * 8);
    finish_tile<Config>(score, body, tile, range, j0);
    softmax.add(score);
    multiply_values<Config>(softmax.acc_o, softmax.weight,
                            tiles.values + stage * Shape::value_tile + lane % 16 * Shape::value_pitch +
                                lane / 16 * 8);
  }
  softmax.store(body, tile);
}

template <class Config, class Body>
DEVICE void attention_prefill_mma(const Body &body) {
  for_each_tile<Config, PrefillMma<Config>::rows>(
      body, [&](const RowTile<int> &tile) { multiply_tile_mma<Config>(body, tile); });
}
