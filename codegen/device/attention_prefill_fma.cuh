#pragma once
// Attention of many rows on FMA units, for operands of any types and head sizes: a block takes a tile of 16
// rows and streams tiles of keys and values through shared memory. Eight threads work on a row. A Config also
// has
//   tile_keys    keys at a time: 16 or 32

#include "attention_codes.cuh"
#include "attention_rows.cuh"

template <class Config>
struct PrefillFma {
  static constexpr int rows = 16, threads = 128, row_threads = threads / rows;
  static constexpr int lane_keys = Config::tile_keys / row_threads;
  static constexpr int lane_columns = (Config::value_depth + row_threads - 1) / row_threads;
  // Odd pitches: threads that read different rows meet different banks.
  static constexpr int key_pitch = Config::depth | 1, value_pitch = Config::value_depth | 1;
  static constexpr int pitch = key_pitch > value_pitch ? key_pitch : value_pitch,
                       weight_pitch = Config::tile_keys + 1;
};

// Rows j0 ... of keys or values, as f32; zeros from `end` on.
template <class Config, class T, int Rows, int Width, int Pitch, int Threads, class Stored, class Scale>
DEVICE void load_f32_tile(f32 *tile, const Stored &rows, i64 column_stride, i64 j0, i64 end,
                          const Scale &scale) {
  for (int e = (int)thread_x(); e < Rows * Width; e += Threads) {
    const int r = e / Width, c = e % Width;
    tile[r * Pitch + c] =
        j0 + r < end
            ? stored_element<Config, T>(load_column(rows.row(j0 + r), c, column_stride), scale, c)
            : 0.f;
  }
}

template <class Config, class Body>
DEVICE void attention_prefill_fma(const Body &body) {
  using Shape = PrefillFma<Config>;
  constexpr int rows = Shape::rows, threads = Shape::threads, row_threads = Shape::row_threads;
  SHARED(f32, query_tile, rows * Shape::key_pitch);
  SHARED(f32, tile, Config::tile_keys * Shape::pitch); // keys, then values
  SHARED(f32, weight_tile, rows * Shape::weight_pitch);
  const int thread = (int)thread_x(), mine = thread / row_threads, part = thread % row_threads;
  const RowTile<i64> at = row_tile<i64>(body, block_x(), rows);
  const bool active = at.row0 + mine <= at.last_row;
  const i64 row = active ? at.row0 + mine : at.last_row, query = query_of(body, row),
            head = head_of(body, at, row);
  MaskRow<Config> mask;
  mask.find(body, at.entry, head, query);
  pdl_wait();
  pdl_launch_dependents();
  const auto stored_k = stored_keys<Config>(body, at.entry, at.kv_head);
  const auto stored_v = stored_values<Config>(body, at.entry, at.kv_head);
  const auto scale_k = key_scale<Config>(body, at.kv_head);
  const auto scale_v = value_scale<Config>(body, at.kv_head);
  for (int e = thread; e < rows * Config::depth; e += threads) {
    const int r = e / Config::depth, c = e % Config::depth;
    const i64 from = row_or_last(at, at.row0 + r);
    query_tile[r * Shape::key_pitch + c] =
        to_f32(load(body.query(at.entry, head_of(body, at, from), query_of(body, from), c)));
  }
  f32 row_max = -inf_f32(), row_sum = 0.f, acc_o[Shape::lane_columns];
#pragma unroll
  for (int i = 0; i < Shape::lane_columns; ++i)
    acc_o[i] = 0.f;
  const KeyRange<i64> range = key_range<Config>(body, at, rows);
  // Pages behind the last key may be anything.
  const i64 key_count = body.key_count(), stored_end = is_paged<Config> ? range.end : key_count;
  const i64 first = first_key<Config>(body, at, query), last = last_key<Config>(body, at, query);
  for (i64 j0 = range.first; j0 < range.end; j0 += Config::tile_keys) {
    barrier();
    load_f32_tile<Config, typename Config::Key, Config::tile_keys, Config::depth, Shape::key_pitch, threads>(
        tile, stored_k, body.key_column_stride(), j0, stored_end, scale_k);
    barrier();
    f32 score[Shape::lane_keys];
#pragma unroll
    for (int i = 0; i < Shape::lane_keys; ++i)
      score[i] = 0.f;
#pragma unroll 8
    for (int c = 0; c < Config::depth; ++c) {
      const f32 factor = query_tile[mine * Shape::key_pitch + c];
#pragma unroll
      for (int i = 0; i < Shape::lane_keys; ++i)
        score[i] = fma_(factor, tile[(part + row_threads * i) * Shape::key_pitch + c], score[i]);
    }
    typename MaskRow<Config>::Value masked[Shape::lane_keys];
#pragma unroll
    for (int i = 0; i < Shape::lane_keys; ++i)
      masked[i] = mask.at(body, j0 + part + row_threads * i, key_count);
    finish_scores<Config>(body, score, masked);
    f32 largest = -inf_f32();
#pragma unroll
    for (int i = 0; i < Shape::lane_keys; ++i) {
      if (const i64 key = j0 + part + row_threads * i; key < first || key > last)
        score[i] = -inf_f32();
      largest = max_nan(largest, score[i]);
    }
    // Weights are relative to the largest score so far; what was summed before is rescaled when that grows.
    largest = max_nan(row_max, lanes_max<row_threads>(largest));
    const bool empty = largest == -inf_f32();
    const f32 rescale = empty ? 1.f : exp_(row_max - largest);
    row_max = largest;
    f32 sum = 0.f;
#pragma unroll
    for (int i = 0; i < Shape::lane_keys; ++i) {
      const f32 weight = empty ? 0.f : exp_(score[i] - largest);
      weight_tile[mine * Shape::weight_pitch + part + row_threads * i] = weight;
      sum = sum + weight;
    }
    row_sum = row_sum * rescale + lanes_sum<row_threads>(sum);
    barrier();
    load_f32_tile<Config, typename Config::Value, Config::tile_keys, Config::value_depth, Shape::value_pitch,
                  threads>(tile, stored_v, body.value_column_stride(), j0, stored_end, scale_v);
    barrier();
#pragma unroll
    for (int i = 0; i < Shape::lane_columns; ++i)
      acc_o[i] = acc_o[i] * rescale;
#pragma unroll 4
    for (int j = 0; j < Config::tile_keys; ++j) {
      const f32 weight = weight_tile[mine * Shape::weight_pitch + j];
#pragma unroll
      for (int i = 0; i < Shape::lane_columns; ++i)
        if (Config::value_depth % row_threads == 0 || part + row_threads * i < Config::value_depth)
          acc_o[i] = fma_(weight, tile[j * Shape::value_pitch + part + row_threads * i], acc_o[i]);
    }
  }
  if (!active)
    return;
  const f32 inverse = inverse_row_sum<Config>(body, at.entry, head, row_max, row_sum);
#pragma unroll
  for (int i = 0; i < Shape::lane_columns; ++i) {
    const int column = part + row_threads * i;
    if (column < Config::value_depth)
      body.store(at.entry, head, query, column, Vec<f32, 1>{acc_o[i] * inverse});
  }
}
