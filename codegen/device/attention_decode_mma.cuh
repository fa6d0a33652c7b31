#pragma once
// Attention of a few rows on tensor cores, for f16 and bf16. Memory bandwidth bounds it, so keys and values
// go straight from memory to the registers of the lane that multiplies them. Each warp takes 16 keys at a
// time. In q*k the keys are the 16 rows of the product and the queries its 8 columns; P*V is computed
// transposed. A lane reads 16 neighbouring bytes at a time, which puts k in an order that is the same in both
// operands. Where a large head would need too many registers, the next keys and values wait in shared memory,
// in places of the lane's own; that is slower. A Config also has
//   row_tiles          tiles of 8 rows: 1 or 2
//   stages             of 16 keys and values that wait in shared memory; 0: they wait in registers
//   streams            of them, in registers, that a warp has on their way: 1, or 2 where registers are left
//   ring               not 0: so many tiles of a warp come by bulk copies, into shared memory (streams = 1).
//                      Rows are contiguous, and stored as elements. No registers wait: where a block has all
//                      keys of a head, that is faster in caches of fixed length
//   queries_aligned    whether rows of queries can be read 16 bytes at a time
// Rows of keys and values can be read 8 columns at a time: their strides are multiples of that, their column
// strides 1. Both are stored in the same type.

#include "attention_decode_ring.cuh"
#include "early_launch.cuh"

// What a lane must know of its rows to finish their scores.
template <class Config, class Body>
struct DecodeRows {
  static constexpr int count = 2 * Config::row_tiles;
  static constexpr bool ends = Config::causal || Config::bounded_above,
                        begins = Config::window > 0 || Config::bounded_below;
  int first[begins ? count : 1], last[ends ? count : 1];
  MaskRow<Config> mask[count];
  typename MaskRow<Config>::Value masked[count][2]; // of the next keys

  DEVICE void start(const Body &body, const DecodeTile &tile) {
    if constexpr (begins || ends || is_masked<Config>) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const i64 row = row_or_last(tile, tile.row0 + score_row(i)), query = query_of(body, row);
        if constexpr (begins)
          first[i] = (int)first_key<Config>(body, tile, query);
        if constexpr (ends)
          last[i] = (int)last_key<Config>(body, tile, query);
        mask[i].find(body, tile.entry, head_of(body, tile, row), query);
      }
    }
  }
  DEVICE void load_mask(const Body &body, const DecodeTile &tile, i64 j) {
    if constexpr (is_masked<Config>) {
#pragma unroll
      for (int i = 0; i < count; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          masked[i][half] = mask[i].at(body, j + fragment_line() + 8 * half, tile.keys.end);
    }
  }
  // score[n] of the 16 keys from j on, in the layout of a product's result. Those from `end` on are of
  // another turn, if there are any.
  DEVICE void finish(f32 (&score)[Config::row_tiles][4], const Body &body, const DecodeTile &tile, i64 j,
                     i64 end) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      f32 s[2] = {score[i / 2][i % 2], score[i / 2][i % 2 + 2]};
      finish_scores<Config>(body, s, masked[i]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = (int)j + fragment_line() + 8 * half;
        const bool visible = (!begins || key >= first[begins ? i : 0]) &&
                             key <= (ends ? last[ends ? i : 0] : (int)body.key_count() - 1) &&
                             (!Config::keeps_new_rows || key < (int)end);
        score[i / 2][i % 2 + 2 * half] = visible ? s[half] : -inf_f32();
      }
    }
  }
};

// The running softmax of a lane's rows, relative to the warp's largest score so far. acc_o are sums of 16 x 8
// fragments: columns of values times rows of queries.
template <class Config>
struct DecodeSoftmax {
  static constexpr int count = 2 * Config::row_tiles;
  f32 row_max[count], row_sum[count], acc_o[Config::row_tiles][DecodeMma<Config>::fragments][4];

  DEVICE void start() {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      row_max[i] = -inf_f32();
      row_sum[i] = 0.f;
    }
#pragma unroll
    for (int n = 0; n < Config::row_tiles; ++n)
#pragma unroll
      for (int i = 0; i < DecodeMma<Config>::fragments; ++i)
        acc_o[n][i][0] = acc_o[n][i][1] = acc_o[n][i][2] = acc_o[n][i][3] = 0.f;
  }
  // Scores become weights; what was summed before is rescaled when the largest score grows.
  DEVICE void add(f32 (&score)[Config::row_tiles][4]) {
    f32 rescale[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      f32 &low = score[i / 2][i % 2], &high = score[i / 2][i % 2 + 2];
      const f32 largest = max_nan(row_max[i], column_max(max_nan(low, high)));
      rescale[i] = weight_of(row_max[i], largest);
      row_max[i] = largest;
      low = weight_of(low, largest);
      high = weight_of(high, largest);
      row_sum[i] = row_sum[i] * rescale[i] + (low + high);
    }
#pragma unroll
    for (int n = 0; n < Config::row_tiles; ++n)
#pragma unroll
      for (int i = 0; i < DecodeMma<Config>::fragments; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc_o[n][i][e] = acc_o[n][i][e] * rescale[2 * n + e % 2];
  }
};

template <class Config, class T, class Stream, class Queries>
DEVICE void decode_scores(f32 (&score)[Config::row_tiles][4], const Stream &stream, const Queries &queries,
                          const KeyScale<Config> &scale) {
  constexpr int key_vectors = DecodeMma<Config>::key_vectors;
#pragma unroll
  for (int c = 0; c < key_vectors; ++c) {
    const int first = c * 32 + fragment_part() * 8, column = first < Config::depth ? first : 0;
    const Vec<u32, 4> low = elements_of<T>(stream.vector(c), scale, column);
    const Vec<u32, 4> high = elements_of<T>(stream.vector(key_vectors + c), scale, column);
#pragma unroll
    for (int n = 0; n < Config::row_tiles; ++n) {
      const Vec<u32, 4> words = queries.vector(n, c);
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const u32 a[4] = {low[2 * w], high[2 * w], low[2 * w + 1], high[2 * w + 1]};
        const u32 b[2] = {words[2 * w], words[2 * w + 1]};
        mma_m16n8k16(score[n], a, b, T());
      }
    }
  }
}
// acc_o += P*V. A weight is two numbers of T, which together keep its digits. Neighbouring keys of a column
// come together in a register.
template <class Config, class T, class Stream>
DEVICE void decode_values(f32 (&acc_o)[Config::row_tiles][DecodeMma<Config>::fragments][4],
                          const f32 (&weight)[Config::row_tiles][4], const Stream &stream,
                          const ValueScale<Config> &scale) {
  u32 weights[Config::row_tiles][2], rests[Config::row_tiles][2];
#pragma unroll
  for (int n = 0; n < Config::row_tiles; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      split_pair<T>(weight[n][2 * half], weight[n][2 * half + 1], weights[n][half], rests[n][half]);
      weights[n][half] = transpose_matrix(weights[n][half]);
      rests[n][half] = transpose_matrix(rests[n][half]);
    }
#pragma unroll
  for (int c = 0; c < DecodeMma<Config>::value_vectors; ++c) {
    const int first = 2 * DecodeMma<Config>::key_vectors + c * 4, lane_column = c * 64 + fragment_line() * 8;
    const int column = lane_column < Config::value_depth ? lane_column : 0;
    const Vec<u32, 4> v0 = elements_of<T>(stream.vector(first), scale, column);
    const Vec<u32, 4> v1 = elements_of<T>(stream.vector(first + 1), scale, column);
    const Vec<u32, 4> v2 = elements_of<T>(stream.vector(first + 2), scale, column);
    const Vec<u32, 4> v3 = elements_of<T>(stream.vector(first + 3), scale, column);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const u32 a[4] = {permute_bytes(v0[w], v1[w], 0x5410u), permute_bytes(v0[w], v1[w], 0x7632u),
                        permute_bytes(v2[w], v3[w], 0x5410u), permute_bytes(v2[w], v3[w], 0x7632u)};
#pragma unroll
      for (int n = 0; n < Config::row_tiles; ++n) {
        mma_m16n8k16(acc_o[n][4 * c + w], a, weights[n], T());
        mma_m16n8k16(acc_o[n][4 * c + w], a, rests[n], T());
      }
    }
  }
}

// The results of the block's warps, all relative to the largest score of the block.
template <class Config, int Rows>
DEVICE void publish_fragments(const WarpResults<Config, Rows> &results, DecodeSoftmax<Config> &softmax) {
  const int warp = warp_of_block();
#pragma unroll
  for (int i = 0; i < softmax.count; ++i) {
    softmax.row_sum[i] = column_sum(softmax.row_sum[i]);
    if (fragment_line() == 0)
      results.row_max[warp * Rows + score_row(i)] = softmax.row_max[i];
  }
  barrier(); // also: keys and values that waited in the same memory are not needed any more
#pragma unroll
  for (int i = 0; i < softmax.count; ++i) {
    const f32 factor = results.rescale_to_block(score_row(i), softmax.row_max[i]);
    if (fragment_line() == 0)
      results.row_sum[warp * Rows + score_row(i)] = softmax.row_sum[i] * factor;
#pragma unroll
    for (int p = 0; p < DecodeMma<Config>::fragments; ++p) {
      const int column = p / 4 * 64 + fragment_line() * 8 + p % 4 * 2;
      const Vec<f32, 2> pair = {softmax.acc_o[i / 2][p][i % 2] * factor,
                                softmax.acc_o[i / 2][p][i % 2 + 2] * factor};
      if (Config::value_depth % 64 == 0 || column < Config::value_depth)
        store_vec(results.acc_o + (warp * Rows + score_row(i)) * results.pitch + column, pair);
    }
  }
}

// Has the L2 fetch the warp's first tiles, from j on, while the kernels before this one still run. Only a
// hint, so that it may name keys that one of them writes. Where rows lie apart it would take a request for
// each: none is made.
template <class Config, class T, class Body>
DEVICE void prefetch_first_tiles(const Body &body, const DecodeTile &tile, i64 j, i64 step) {
  constexpr int tiles = 2; // more of them delay what that kernel itself asks for
  if (is_paged<Config> || lane_of_warp() >= 2)
    return;
  const bool isKeys = lane_of_warp() == 0;
  const T *rows =
      isKeys ? body.key_rows(tile.entry, tile.kv_head) : body.value_rows(tile.entry, tile.kv_head);
  const i64 stride = isKeys ? body.key_stride() : body.value_stride();
  if (stride != (isKeys ? Config::depth : Config::value_depth) / columns_of<T>)
    return;
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    const i64 first = j + t * step, all = first + DecodeMma<Config>::tile_keys;
    const i64 end = all < tile.keys.end ? all : tile.keys.end;
    if (first < end)
      prefetch_range(rows + first * stride, rows + end * stride);
  }
}

template <class Config, class Body, class Heads = NoHeads>
DEVICE void attention_decode_mma(const Body &body, const Heads &heads = Heads()) {
  using Stored = typename Config::Key;
  using T = typename product_type<Config, Stored>::type;
  constexpr int rows = DecodeMma<Config>::rows, tile_keys = DecodeMma<Config>::tile_keys;
  launch_before_wait<Config>();
  if (has_no_work<Config>())
    return;
  if constexpr ((is_bounded<Config> && !Config::bounds_before_wait) || is_paged<Config>)
    pdl_wait();
  const DecodeTile tile = decode_tile<Config>(body, rows);
  const BlockResults<Config, rows> blocks = start_merge<Config, rows>(tile);
  DecodeRows<Config, Body> lane_rows;
  lane_rows.start(body, tile);
  const int warp = tile.rank * Config::warps + warp_of_block(); // of the cluster's
  const i64 step = (i64)cluster_blocks<Config::cluster> * Config::warps * tile_keys;
  // Of the keys that lie in the cache when the kernel starts, or, if it writes new ones there, then.
  const i64 end = Config::keeps_new_rows && tile.shift < tile.keys.end ? tile.shift : tile.keys.end;
  i64 j = tile.keys.first + warp * tile_keys;
  typename decode_stream<Config, Stored>::type streams[Config::streams];
#pragma unroll
  for (int s = 0; s < Config::streams; ++s) {
    streams[s].from.start(body, tile, j + s * step);
    streams[s].from.end = end;
  }
  constexpr int turns = Config::streams;
  auto start_streams = [&] {
#pragma unroll
    for (int s = 0; s < turns; ++s)
      streams[s].start(j + s * step, turns * step);
  };
  constexpr bool starts_early = Config::keys_before_wait;
  if constexpr (starts_early)
    start_streams();
  // Tiles of a warp that its streams ask for when they start.
  constexpr int asked = turns * (Config::ring > 0 ? Config::ring : Config::stages > 1 ? Config::stages : 1);
  if constexpr (Config::ring == 0) // a ring has enough on its way
    prefetch_first_tiles<Config, Stored>(body, tile, starts_early ? j + asked * step : j, step);
  pdl_wait();
  launch_after_wait<Config>();
  // Keys of the past, and queries that are there, are on their way while heads are made; what a warp reads of
  // new keys comes after that.
  const bool starts_first =
      !starts_early && Config::extends_keys && j + (asked - 1) * step + tile_keys <= tile.shift;
  if (starts_first)
    start_streams();
  DecodeQueries<Config> queries;
  if constexpr (!Config::makes_queries)
    queries.start(body, tile, MadeRows<Config>());
  const MadeRows<Config> made = make_heads<Config, rows>(body, tile, heads);
  if constexpr (Config::makes_queries)
    queries.start(body, tile, made);
  const auto scale_k = key_scale<Config>(body, tile.kv_head);
  const auto scale_v = value_scale<Config>(body, tile.kv_head);

  DecodeSoftmax<Config> softmax;
  softmax.start();
  lane_rows.load_mask(body, tile, j);
  if (!starts_early && !starts_first)
    start_streams();
  if constexpr (Config::keeps_new_rows) {
    // New keys are the tiles after the last: their turn is that of the warp that would go on there.
    const i64 past = end > tile.keys.first ? (end - tile.keys.first + tile_keys - 1) / tile_keys : 0;
    if (past % (cluster_blocks<Config::cluster> * Config::warps) == warp) {
      const int count = (int)(tile.keys.end - tile.shift);
#pragma unroll 1
      for (int first = 0; first < count; first += tile_keys) {
        MadeKeys<Config, Stored> fresh;
        fresh.load(made, first, count);
        f32 score[Config::row_tiles][4] = {};
        decode_scores<Config, T>(score, fresh, queries, scale_k);
        lane_rows.load_mask(body, tile, tile.shift + first);
        lane_rows.finish(score, body, tile, tile.shift + first, tile.keys.end);
        softmax.add(score);
        decode_values<Config, T>(softmax.acc_o, score, fresh, scale_v);
      }
      lane_rows.load_mask(body, tile, j);
    }
  }
#pragma unroll 1
  for (; j < end; j += turns * step) {
#pragma unroll
    for (int s = 0; s < turns; ++s) {
      const i64 at = j + s * step;
      if (s > 0 && at >= end)
        break;
      auto &stream = streams[s];
      f32 score[Config::row_tiles][4] = {};
      stream.await(at);
      decode_scores<Config, T>(score, stream, queries, scale_k);
      stream.keys_used(at, turns * step);
      lane_rows.finish(score, body, tile, at, end);
      lane_rows.load_mask(body, tile, at + step);
      softmax.add(score);
      decode_values<Config, T>(softmax.acc_o, score, stream, scale_v);
      stream.values_used(at, turns * step);
    }
  }
#pragma unroll
  for (int s = 0; s < turns; ++s)
    streams[s].finish();
  const WarpResults<Config, rows> results = warp_results<Config, rows>();
  publish_fragments(results, softmax);
  merge_rows(body, tile, results, blocks);
}
