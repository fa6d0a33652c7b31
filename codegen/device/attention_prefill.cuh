#pragma once
// What the attention kernels of many rows on tensor cores share, for f16 and bf16: a block takes a tile of
// rows of one key/value head and streams tiles of keys and values through shared memory. A warp has 16 or 32
// of the rows; their scores, weights and acc_o stay in its registers, as fragments of matrix products: lane l
// holds rows l / 4 (+ 8) and columns 2 (l % 4) (+ 1) of every 16 x 8. A Config also has
//   warps, row_tiles    row_tiles: tiles of 16 rows that a warp has
//   tile_keys           keys at a time
//   exponent_scale      what a score is multiplied with to become an exponent of 2
//   scale_only          scores are q*k: exponent_scale does all the scaling, and Body has no score()
// Rows of queries, keys and values can be read 16 bytes at a time, those of the result lie side by side.

#include "attention_codes.cuh"
#include "attention_rows.cuh"

// Swizzled: in panels of 64 columns, as wgmma reads them; else with rows 16 bytes longer than needed, so that
// ldmatrix meets every bank once. Depths are padded to multiples of 16, with zeros.
template <class Config, bool Swizzled>
struct PrefillShape {
  static DEVICE constexpr int padded(int width) { return (width + 15) / 16 * 16; }
  static DEVICE constexpr int pitch(int width) { return Swizzled ? (width + 63) / 64 * 64 : width + 8; }
  static constexpr int threads = 32 * Config::warps, rows = 16 * Config::warps * Config::row_tiles;
  static constexpr int depth = padded(Config::depth), value_depth = padded(Config::value_depth);
  static constexpr int key_pitch = pitch(depth), value_pitch = pitch(value_depth);
  static constexpr int key_tile = Config::tile_keys * key_pitch, value_tile = Config::tile_keys * value_pitch;
  static constexpr int shared_bytes = 2 * (rows * key_pitch + 2 * (key_tile + value_tile));
  static constexpr bool swizzled = Swizzled;
};
// Where row `row`, column `column` (a multiple of 8) of a tile of Rows rows lies in it.
template <int Rows, int Pitch, bool Swizzled>
DEVICE int tile_place(int row, int column) {
  return Swizzled ? column / 64 * (64 * Rows) + row * 64 + (column % 64 / 8 ^ row % 8) * 8
                  : row * Pitch + column;
}

// The causal kernel takes the tiles that look at the most keys first.
template <class Config, int Rows, class Body>
DEVICE RowTile<int> prefill_tile(const Body &body) {
  RowTile<int> tile = row_tile<int>(body, block_x(), Rows);
  if constexpr (Config::causal) {
    const u32 kv_heads = (u32)body.kv_heads(), all_heads = kv_heads * (u32)body.batch();
    const u32 tiles = (u32)((body.query_count() * body.group() + Rows - 1) / Rows);
    tile.row0 = (int)(tiles - 1 - block_x() / all_heads) * Rows;
    tile.kv_head = block_x() % kv_heads;
    tile.entry = block_x() % all_heads / kv_heads;
  }
  return tile;
}

// Where the rows lie that a thread copies, `step` apart. With pages all their numbers are asked for before
// the first copy starts.
template <class Config, class Stored, int Passes, bool Paged = is_paged<Config>>
struct CopiedRows {
  const Stored *next;
  i64 step;
  DEVICE CopiedRows(const StoredRows<Config, Stored> &rows, int j, int step, int)
      : next(rows.row(j)), step(step * rows.stride) {}
  DEVICE const Stored *take(int) {
    const Stored *const row = next;
    next += step;
    return row;
  }
};
template <class Config, class Stored, int Passes>
struct CopiedRows<Config, Stored, Passes, true> {
  const Stored *places[Passes];
  DEVICE CopiedRows(const StoredRows<Config, Stored> &rows, int j, int step, int end) {
#pragma unroll
    for (int p = 0; p < Passes; ++p)
      places[p] = j + p * step < end ? rows.row(j + p * step) : rows.first;
  }
  DEVICE const Stored *take(int pass) const { return places[pass]; }
};

// Starts the copies of rows j0 ... of keys or values to a tile, or makes elements of codes on the way; zeros
// from row `end` on and beyond the head's Width.
template <class Config, class Shape, int Rows, int Width, int Padded, int Pitch, class T, class Stored,
          class Scale>
DEVICE void copy_tile(T *tile, const StoredRows<Config, Stored> &rows, int j0, int end, const Scale &scale) {
  constexpr int per_row = Padded / 8, all = Shape::threads / per_row < Rows ? Shape::threads / per_row : Rows;
  // Swizzled: so that the order of a row's vectors is the same for all rows of a thread.
  constexpr int rows_at_once = Shape::swizzled ? all / 8 * 8 : all,
                passes = (Rows + rows_at_once - 1) / rows_at_once;
  const int thread = (int)thread_x(), r = thread / per_row, c = thread % per_row * 8;
  if (rows_at_once * per_row < Shape::threads && thread >= rows_at_once * per_row)
    return;
  CopiedRows<Config, Stored, passes> copied(rows, j0 + r, rows_at_once, end);
#pragma unroll
  for (int i = 0; i < Rows; i += rows_at_once) {
    const Stored *const from = copied.take(i / rows_at_once) + c / columns_of<Stored>;
    if (passes * rows_at_once <= Rows || r + i < Rows) {
      T *const to = tile + tile_place<Rows, Pitch, Shape::swizzled>(r + i, c);
      const bool inside = j0 + r + i < end && (Width == Padded || c < Width);
      if constexpr (is_code<Stored>)
        store_vec(reinterpret_cast<u32 *>(to),
                  elements_of<T>(load_stored(from, inside), scale, c < Width ? c : 0));
      else
        cp_async_16(to, from, inside);
    }
  }
}
// By Threads threads.
template <class Config, class Shape, int Threads = Shape::threads, class Body, class T>
DEVICE void copy_queries(T *query_tile, const Body &body, const RowTile<int> &tile,
                         int thread = (int)thread_x()) {
  constexpr int per_row = Shape::depth / 8;
#pragma unroll 2
  for (int i = thread; i < Shape::rows * per_row; i += Threads) {
    const int r = i / per_row, c = i % per_row * 8;
    const bool valid = tile.row0 + r <= tile.last_row && (Config::depth == Shape::depth || c < Config::depth);
    const int row = valid ? tile.row0 + r : tile.row0;
    cp_async_16(query_tile + tile_place<Shape::rows, Shape::key_pitch, Shape::swizzled>(r, c),
                body.query(tile.entry, head_of(body, tile, row), query_of(body, row), c), valid);
  }
}

// Calls visit(tile) for the tiles of rows of the block, by all threads: one, or, of a ragged Config, those
// tokens of some that belong to one sequence each. A Config that is ragged also has
//   tile_blocks    blocks that share the sequences of a tile of tokens
template <class Config, int Rows, class Body, class Visit>
DEVICE void for_each_tile(const Body &body, Visit visit) {
  if constexpr (!Config::ragged) {
    visit(prefill_tile<Config, Rows>(body));
  } else {
    pdl_wait();
    const int group = (int)body.group(), tokens = Rows / group, all = (int)body.query_count();
    const u32 kv_heads = (u32)body.kv_heads(), blocks = (u32)Config::tile_blocks;
    const int begin = (int)(block_x() / (blocks * kv_heads)) * tokens,
              end = begin + tokens < all ? begin + tokens : all;
    u32 number = 0;
    for (int token = begin; token < end; ++number) {
      const int next = next_sequence(body, token, end);
      if (number % blocks == block_x() % blocks) {
        RowTile<int> tile;
        tile.row0 = token * group;
        tile.last_row = next * group - 1;
        tile.shift = 0;
        tile.kv_head = block_x() / blocks % kv_heads;
        tile.entry = token;
        visit(tile);
        cp_async_wait<0>();
        barrier(); // the tiles in shared memory are free
      }
      token = next;
    }
  }
}

// Keys and values of two stages: while one is multiplied, the other arrives.
template <class Config, class Shape, class T>
struct KeyTiles {
  T *keys, *values;
  StoredRows<Config, typename Config::Key> key_rows;
  StoredRows<Config, typename Config::Value> value_rows;
  int end;
  KeyScale<Config> key_scale;
  ValueScale<Config> value_scale;

  DEVICE void copy(int j0, int stage) const {
    copy_tile<Config, Shape, Config::tile_keys, Config::depth, Shape::depth, Shape::key_pitch>(
        keys + stage * Shape::key_tile, key_rows, j0, end, key_scale);
    copy_tile<Config, Shape, Config::tile_keys, Config::value_depth, Shape::value_depth, Shape::value_pitch>(
        values + stage * Shape::value_tile, value_rows, j0, end, value_scale);
  }
};
// After the tile of queries. To be called after pdl_wait(). What pages hold from `end` on may be anything.
template <class Config, class Shape, class Body, class T>
DEVICE KeyTiles<Config, Shape, T> key_tiles(const Body &body, const RowTile<int> &tile, int end,
                                            T *query_tile) {
  T *const keys = query_tile + Shape::rows * Shape::key_pitch;
  return {keys,
          keys + 2 * Shape::key_tile,
          stored_keys<Config>(body, tile.entry, tile.kv_head),
          stored_values<Config>(body, tile.entry, tile.kv_head),
          is_paged<Config> ? end : (int)body.key_count(),
          key_scale<Config>(body, tile.kv_head),
          value_scale<Config>(body, tile.kv_head)};
}

// The row of the problem that `half` (0, 1) of a lane's fragment m has.
template <class Config>
DEVICE int fragment_row(const RowTile<int> &tile, int m, int half) {
  return tile.row0 + warp_of_block() * (16 * Config::row_tiles) + m * 16 + half * 8 + lane_of_warp() / 4;
}

// -inf for keys that rows do not look at, in tiles of which some row looks at a part only: at the end, on the
// diagonal, at the window's far side, around the ends of queries' own.
template <class Config, class Body>
DEVICE void mask_edges(f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4], const Body &body,
                       const RowTile<int> &tile, const KeyRange<int> &range, int j0) {
#pragma unroll
  for (int m = 0; m < Config::row_tiles; ++m) {
    const int first_row = tile.row0 + (warp_of_block() * Config::row_tiles + m) * 16;
    bool edge = (int)body.key_count() - j0 < Config::tile_keys;
    if constexpr (Config::causal)
      edge = edge || j0 + (Config::tile_keys - 1) > query_of(body, first_row) + tile.shift;
    if constexpr (Config::window > 0)
      edge = edge || j0 <= query_of(body, first_row + 15) + tile.shift - Config::window;
    if constexpr (is_bounded<Config>)
      edge = edge || j0 < range.inner || j0 + Config::tile_keys > range.inner_end;
    if (edge) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = fragment_row<Config>(tile, m, half), left = (int)body.key_count() - j0;
        int first = 0, last = left - 1; // of the tile
        if constexpr (is_bounded<Config>) {
          const int query = query_of(body, row_or_last(tile, row));
          first = first_key<Config>(body, tile, query) - j0;
          last = last_key<Config>(body, tile, query) - j0;
        } else {
          const int aligned = query_of(body, row) + tile.shift - j0;
          last = Config::causal && aligned < last ? aligned : last;
          first = Config::window > 0 ? aligned - Config::window + 1 : 0;
        }
#pragma unroll
        for (int n = 0; n < Config::tile_keys / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = n * 8 + lane_of_warp() % 4 * 2 + e;
            if (!(key >= first && key <= last))
              score[m][n][2 * half + e] = -inf_f32();
          }
      }
    }
  }
}
// What bodies with more than a scale do to scores.
template <class Config, class Body>
DEVICE void finish_fragments(f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4], const Body &body,
                             const RowTile<int> &tile, int j0) {
#pragma unroll
  for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_or_last(tile, fragment_row<Config>(tile, m, half));
      MaskRow<Config> mask;
      mask.find(body, tile.entry, head_of(body, tile, row), query_of(body, row));
#pragma unroll
      for (int n = 0; n < Config::tile_keys / 8; ++n) {
        const i64 key = j0 + n * 8 + lane_of_warp() % 4 * 2, key_count = body.key_count();
        f32 s[2] = {score[m][n][2 * half], score[m][n][2 * half + 1]};
        const typename MaskRow<Config>::Value masked[2] = {mask.at(body, key, key_count),
                                                           mask.at(body, key + 1, key_count)};
        finish_scores<Config>(body, s, masked);
        score[m][n][2 * half] = s[0];
        score[m][n][2 * half + 1] = s[1];
      }
    }
}

// The running softmax of a lane's rows: weights are relative to the largest score so far, powers of two.
template <class Config, class T>
struct PrefillWeights {
  f32 row_max[Config::row_tiles][2], row_sum[Config::row_tiles][2];
  u32 weight[Config::row_tiles][Config::tile_keys / 16]
            [4]; // of the tile at hand, rounded to T, as operand of P*V

  DEVICE void start() {
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m) {
      row_max[m][0] = row_max[m][1] = -inf_f32();
      row_sum[m][0] = row_sum[m][1] = 0.f;
    }
  }
  // Differences first where a mask's large numbers would not survive the factor.
  static DEVICE f32 power(f32 score, f32 base) {
    return Config::scale_only ? exp2_near(fma_(score, Config::exponent_scale, -base))
                              : exp2_near((score - base) * Config::exponent_scale);
  }
  // Of what is compared, where the factor of the exponent includes the scale.
  static DEVICE f32 score_of(f32 value) {
    return Config::scale_only ? value * (Config::exponent_scale * 0.693147181f) : value;
  }
  // Of the scores, and of all before.
  DEVICE void find_largest(const f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4],
                           f32 (&largest)[Config::row_tiles][2]) const {
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        f32 found = row_max[m][half];
#pragma unroll
        for (int n = 0; n < Config::tile_keys / 8; ++n)
          found = max_nan(found, max_nan(score[m][n][2 * half], score[m][n][2 * half + 1]));
        largest[m][half] = lanes_max<4>(found);
      }
  }
  // Scores become weights, still in f32; what was summed before is to be multiplied with `rescale`.
  DEVICE void to_weights(f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4],
                         const f32 (&largest)[Config::row_tiles][2], f32 (&rescale)[Config::row_tiles][2]) {
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const f32 base = largest[m][half] == -inf_f32() ? 0.f
                         : Config::scale_only           ? largest[m][half] * Config::exponent_scale
                                                        : largest[m][half];
        rescale[m][half] = power(row_max[m][half], base);
        row_max[m][half] = largest[m][half];
        f32 sum = 0.f;
#pragma unroll
        for (int n = 0; n < Config::tile_keys / 8; ++n) {
          f32 &first = score[m][n][2 * half], &second = score[m][n][2 * half + 1];
          first = power(first, base);
          second = power(second, base);
          sum = sum + (first + second);
        }
        row_sum[m][half] = fma_(row_sum[m][half], rescale[m][half], sum);
      }
  }
  DEVICE void to_weights(f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4],
                         f32 (&rescale)[Config::row_tiles][2]) {
    f32 largest[Config::row_tiles][2];
    find_largest(score, largest);
    to_weights(score, largest, rescale);
  }
  DEVICE void pack(const f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4]) {
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < Config::tile_keys / 8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          weight[m][n / 2][n % 2 * 2 + half] =
              packed_pair<T>(score[m][n][2 * half], score[m][n][2 * half + 1]);
  }
};
// And the sums of values that they weigh.
template <class Config, class Shape, class T>
struct PrefillSoftmax : PrefillWeights<Config, T> {
  static constexpr int fragments = Shape::value_depth / 8;
  f32 acc_o[Config::row_tiles][fragments][4];

  DEVICE void start() {
    PrefillWeights<Config, T>::start();
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < fragments; ++n)
        acc_o[m][n][0] = acc_o[m][n][1] = acc_o[m][n][2] = acc_o[m][n][3] = 0.f;
  }
  DEVICE void multiply(const f32 (&rescale)[Config::row_tiles][2]) {
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < fragments; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc_o[m][n][e] = acc_o[m][n][e] * rescale[m][e / 2];
  }
  // A tile of scores joins in; what was summed before is rescaled when the largest score grows.
  DEVICE void add(f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4]) {
    f32 rescale[Config::row_tiles][2];
    this->to_weights(score, rescale);
    this->pack(score);
    multiply(rescale);
  }
  template <class Body>
  DEVICE void store(const Body &body, const RowTile<int> &tile) const {
#pragma unroll
    for (int m = 0; m < Config::row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const f32 sum = lanes_sum<4>(this->row_sum[m][half]);
        const int row = fragment_row<Config>(tile, m, half);
        if (row > tile.last_row)
          continue;
        const i64 query = query_of(body, row), head = head_of(body, tile, row);
        const f32 inverse =
            inverse_row_sum<Config>(body, tile.entry, head, this->score_of(this->row_max[m][half]), sum);
#pragma unroll
        for (int n = 0; n < (Config::value_depth + 7) / 8; ++n)
          body.store(tile.entry, head, query, n * 8 + lane_of_warp() % 4 * 2,
                     Vec<f32, 2>{acc_o[m][n][2 * half] * inverse, acc_o[m][n][2 * half + 1] * inverse});
      }
  }
};
template <class Config, class Body>
DEVICE void finish_tile(f32 (&score)[Config::row_tiles][Config::tile_keys / 8][4], const Body &body,
                        const RowTile<int> &tile, const KeyRange<int> &range, int j0) {
  if constexpr (!Config::scale_only)
    finish_fragments<Config>(score, body, tile, j0);
  mask_edges<Config>(score, body, tile, range, j0);
}
