#pragma once
// Attention of a few rows on FMA units, for operands of any types and head sizes. Each warp takes
// `keys_at_once` keys at a time, and all its lanes have columns of each. Of the scores that come of their
// sums each lane has one: of key lane / 4 for row lane % 4. A Config also has
//   key_vector, value_vector    elements that a lane reads at once; a power of two

#include "attention_codes.cuh"
#include "attention_decode.cuh"

// The columns of a row that a lane has: `vectors` vectors of Length neighbours.
template <int Width, int Length>
struct LaneColumns {
  static constexpr int width = Width, length = Length, vectors = (Width + 32 * Length - 1) / (32 * Length);
  static constexpr int count = vectors * Length;
  static DEVICE int column(int vector) { return (vector * 32 + lane_of_warp()) * Length; }
  static DEVICE bool has(int column) { return Width % (32 * Length) == 0 || column < Width; }
};
template <class Config>
struct DecodeFma {
  using Keys = LaneColumns<Config::depth, Config::key_vector>;
  using Values = LaneColumns<Config::value_depth, Config::value_vector>;
  static constexpr int rows = 4, keys_at_once = Keys::count + Values::count <= 8 ? 8 : 4;
  static constexpr int shared_bytes = WarpResults<Config, rows>::acc_bytes;
};

// The lane's columns of keys j ... j + Count - 1, as f32; zeros from `end` on.
template <class Columns, bool Written, int Count, class Stored>
DEVICE void load_rows(f32 (&rows)[Count][Columns::vectors][Columns::length], const Stored &stored,
                      i64 column_stride, i64 j, i64 end) {
#pragma unroll
  for (int b = 0; b < Count; ++b) {
    const auto *from = stored.first;
    if (j + b < end)
      from = stored.row(j + b);
#pragma unroll
    for (int v = 0; v < Columns::vectors; ++v) {
      const int column = Columns::column(v);
      load_columns<Written>(rows[b][v], from, column, column_stride, j + b < end && Columns::has(column));
    }
  }
}
template <class Columns, class Config, int Rows, class Body>
DEVICE void load_queries(f32 (&queries)[Rows][Columns::vectors][Columns::length], const Body &body,
                         const DecodeTile &tile, const MadeRows<Config> &made) {
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const i64 row = row_or_last(tile, tile.row0 + r);
#pragma unroll
    for (int v = 0; v < Columns::vectors; ++v)
#pragma unroll
      for (int e = 0; e < Columns::length; ++e) {
        const int column = Columns::column(v) + e;
        queries[r][v][e] = 0.f;
        if (!Columns::has(column))
          continue;
        if constexpr (Config::makes_queries)
          queries[r][v][e] = to_f32(load(made.query(tile, row) + column));
        else
          queries[r][v][e] =
              to_f32(load(body.query(tile.entry, head_of(body, tile, row), query_of(body, row), column)));
      }
  }
}
// Codes become elements, when they are needed.
template <class Config, class Stored, class Columns, int Count, class Scale>
DEVICE void decode_rows(f32 (&rows)[Count][Columns::vectors][Columns::length], const Scale &scale) {
  if constexpr (is_code<Stored>) {
#pragma unroll
    for (int b = 0; b < Count; ++b)
#pragma unroll
      for (int v = 0; v < Columns::vectors; ++v)
#pragma unroll
        for (int e = 0; e < Columns::length; ++e) {
          const int column = Columns::column(v) + e;
          rows[b][v][e] =
              stored_element<Config, Stored>(rows[b][v][e], scale, Columns::has(column) ? column : 0);
        }
  }
}
// The sum over the warp's lanes of q*k: of key lane / Rows for row lane % Rows.
template <int Keys, int Rows, int Vectors, int Length>
DEVICE f32 dot_products(const f32 (&queries)[Rows][Vectors][Length],
                        const f32 (&keys)[Keys][Vectors][Length]) {
  f32 parts[Keys * Rows];
#pragma unroll
  for (int b = 0; b < Keys; ++b)
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      f32 sum = 0.f;
#pragma unroll
      for (int v = 0; v < Vectors; ++v)
#pragma unroll
        for (int e = 0; e < Length; ++e)
          sum = fma_(queries[r][v][e], keys[b][v][e], sum);
      parts[b * Rows + r] = sum;
    }
  return sum_each(parts);
}
// acc_o = acc_o * rescale + P*V, with the weights and factors that dot_products' lanes hold.
template <int Keys, int Rows, int Vectors, int Length>
DEVICE void add_weighted(f32 (&acc_o)[Rows][Vectors][Length], const f32 (&values)[Keys][Vectors][Length],
                         f32 weight, f32 rescale) {
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const f32 factor = shuffle_index(rescale, r);
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (int e = 0; e < Length; ++e)
        acc_o[r][v][e] = acc_o[r][v][e] * factor;
#pragma unroll
    for (int b = 0; b < Keys; ++b) {
      const f32 each = shuffle_index(weight, b * Rows + r);
#pragma unroll
      for (int v = 0; v < Vectors; ++v)
#pragma unroll
        for (int e = 0; e < Length; ++e)
          acc_o[r][v][e] = fma_(each, values[b][v][e], acc_o[r][v][e]);
    }
  }
}
template <class Columns, class Config, int Rows>
DEVICE void publish_results(const WarpResults<Config, Rows> &results,
                            const f32 (&acc_o)[Rows][Columns::vectors][Columns::length], f32 row_max,
                            f32 row_sum) {
  const int lane = lane_of_warp(), warp = warp_of_block();
  row_sum = column_sum(row_sum);
  if (lane < Rows)
    results.row_max[warp * Rows + lane] = row_max;
  barrier();
  if (lane < Rows)
    results.row_sum[warp * Rows + lane] = row_sum * results.rescale_to_block(lane, row_max);
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const f32 factor = results.rescale_to_block(r, shuffle_index(row_max, r));
#pragma unroll
    for (int v = 0; v < Columns::vectors; ++v)
#pragma unroll
      for (int e = 0; e < Columns::length; ++e)
        if (Columns::has(Columns::column(v) + e))
          results.acc_o[(warp * Rows + r) * results.pitch + Columns::column(v) + e] = acc_o[r][v][e] * factor;
  }
}

template <class Config, class Body, class Heads = NoHeads>
DEVICE void attention_decode_fma(const Body &body, const Heads &heads = Heads()) {
  using Shape = DecodeFma<Config>;
  using Keys = typename Shape::Keys;
  using Values = typename Shape::Values;
  constexpr int rows = Shape::rows, batch = Shape::keys_at_once;
  if (has_no_work<Config>())
    return;
  if constexpr (is_bounded<Config> || is_paged<Config>)
    pdl_wait();
  const DecodeTile tile = decode_tile<Config>(body, rows);
  const int lane = lane_of_warp(), warp = warp_of_block();
  const auto stored_k = stored_keys<Config>(body, tile.entry, tile.kv_head);
  const auto stored_v = stored_values<Config>(body, tile.entry, tile.kv_head);
  const BlockResults<Config, rows> blocks = start_merge<Config, rows>(tile);
  // This lane's score: of key j + place.
  const int place = lane % (batch * rows) / rows;
  const i64 row = row_or_last(tile, tile.row0 + lane % rows), query = query_of(body, row),
            end = tile.keys.end;
  MaskRow<Config> mask;
  mask.find(body, tile.entry, head_of(body, tile, row), query);
  const i64 first = first_key<Config>(body, tile, query), last = last_key<Config>(body, tile, query);
  pdl_wait();
  pdl_launch_dependents();
  // Queries that are there are on their way while heads are made.
  f32 queries[rows][Keys::vectors][Keys::length];
  if constexpr (!Config::makes_queries)
    load_queries<Keys, Config>(queries, body, tile, MadeRows<Config>());
  static_assert(!Config::keeps_new_rows, "new rows are read in the cache");
  const MadeRows<Config> made = make_heads<Config, rows>(body, tile, heads);
  if constexpr (Config::makes_queries)
    load_queries<Keys, Config>(queries, body, tile, made);
  const auto scale_k = key_scale<Config>(body, tile.kv_head);
  const auto scale_v = value_scale<Config>(body, tile.kv_head);

  f32 keys[batch][Keys::vectors][Keys::length], values[batch][Values::vectors][Values::length];
  typename MaskRow<Config>::Value masked[1];
  auto load_keys = [&](i64 j) {
    load_rows<Keys, Config::makes_heads>(keys, stored_k, body.key_column_stride(), j, end);
    masked[0] = mask.at(body, j + place, end);
  };
  auto load_values = [&](i64 j) {
    load_rows<Values, Config::makes_heads>(values, stored_v, body.value_column_stride(), j, end);
  };
  f32 row_max = -inf_f32(), row_sum = 0.f, acc_o[rows][Values::vectors][Values::length] = {};
  const i64 step = (i64)cluster_blocks<Config::cluster> * Config::warps * batch;
  i64 j = tile.keys.first + (tile.rank * Config::warps + warp) * batch;
  load_keys(j);
  load_values(j);
  // Each load for the next keys starts as soon as its registers are free.
#pragma unroll 1
  for (; j < end; j += step) {
    decode_rows<Config, typename Config::Key, Keys>(keys, scale_k);
    f32 s[1] = {dot_products(queries, keys)};
    finish_scores<Config>(body, s, masked);
    const f32 score = j + place >= first && j + place <= last ? s[0] : -inf_f32();
    load_keys(j + step);
    const f32 largest = max_nan(row_max, column_max(score));
    const f32 rescale = weight_of(row_max, largest), weight = weight_of(score, largest);
    row_max = largest;
    row_sum = row_sum * rescale + (lane < batch * rows ? weight : 0.f);
    decode_rows<Config, typename Config::Value, Values>(values, scale_v);
    add_weighted(acc_o, values, weight, rescale);
    load_values(j + step);
  }
  const WarpResults<Config, rows> results = warp_results<Config, rows>();
  publish_results<Values>(results, acc_o, row_max, row_sum);
  merge_rows(body, tile, results, blocks);
}
