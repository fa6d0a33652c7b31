#pragma once
// Which rows, keys and scores a block of an attention kernel works on. Heads of a group share keys and
// values, so their rows are one problem: row r of a key/value head is query r / group of its head r % group.
//
// Every attention template takes a Config, which derives from AttentionConfig, and a Body. In a Config, at
// compile time:
//   Query, Key, Value    types of the elements
//   Mask                 of a mask's: bool (keep) or a float (add); void: there is none
//   depth, value_depth   head size of queries and keys; of values and results
//   causal               query i looks at keys up to i + shift, where shift = key_count - query_count
//   window               and at no more than so many; 0: at all
//   bounded_above, bounded_below    each query has a last key, a first key of its own
//   zero_masked_rows     a row that looks at none of the keys becomes 0, else NaN
//   page_size, ragged    where rows lie: see attention_pages.cuh
//   has_sink             a score of each head takes its share of every row and adds no value
// and tile sizes, which each template names. A Body says where tensors lie and what happens to a score:
//   i64 batch(), kv_heads(), group(), query_count(), key_count()
//   const Query *query(entry, head, query, column)
//   const Key *key_rows(entry, kv_head), i64 key_stride(), key_column_stride(); the same of value
//   const Mask *mask_row(entry, head, query), const Mask *mask(row, key)
//   i64 last_key(entry, query), first_key(entry, query)    where queries have their own; any number.
//                                                          After pdl_wait()
//   f32 sink(entry, head)                                  where there is one
//   void score(f32 (&s)[N])                                q*k of N keys of one row become their scores:
//                                                          scaled, capped
//   void score(f32 (&s)[N], const mask_value<Mask> (&mask)[N])   the same with a mask
//   void store(entry, head, query, column, const Vec<f32, N> &)  N neighbouring columns of a result

#include "attention_pages.cuh"

/// What a Config may leave out. Those that make heads: see attention_decode.cuh.
struct AttentionConfig {
  static constexpr bool has_sink = false, makes_heads = false, makes_queries = false, extends_keys = false,
                        keeps_new_rows = false, keys_before_wait = false, bounds_before_wait = false;
  static constexpr int ring = 0;
};

DEVICE int lane_of_warp() { return (int)thread_x() % 32; }
DEVICE int warp_of_block() { return (int)thread_x() / 32; }

// A tile of rows of one key/value head. Index: i64, or int where a head has fewer than 2^31 rows and keys.
template <class Index>
struct RowTile {
  Index row0, last_row; // last_row: of the head, not of the tile
  Index shift;          // query i is aligned with key i + shift
  i64 kv_head, entry;   // entry: of the batch
};
// Tile `block`, of `rows` rows. 32-bit divisions: 64-bit ones are calls, around which registers spill. A grid
// is below 2^31.
template <class Index, class Body>
DEVICE RowTile<Index> row_tile(const Body &body, u32 block, int rows) {
  const i64 all = body.query_count() * body.group();
  const u32 tiles = (u32)((all + rows - 1) / rows), kv_heads = (u32)body.kv_heads();
  RowTile<Index> tile;
  tile.row0 = (Index)(block % tiles) * rows;
  tile.kv_head = block / tiles % kv_heads;
  tile.entry = block / (tiles * kv_heads);
  tile.last_row = (Index)all - 1;
  tile.shift = (Index)body.key_count() - (Index)body.query_count();
  return tile;
}
template <class Index, class Body>
DEVICE Index query_of(const Body &body, Index row) {
  return row / (Index)body.group();
}
template <class Index, class Body>
DEVICE i64 head_of(const Body &body, const RowTile<Index> &tile, Index row) {
  return tile.kv_head * body.group() + row % (Index)body.group();
}
template <class Index>
DEVICE Index row_or_last(const RowTile<Index> &tile, Index row) {
  return row < tile.last_row ? row : tile.last_row;
}

template <class Config>
constexpr bool is_bounded = Config::bounded_above || Config::bounded_below;

// The first and the last key that a query looks at, if it looks at any.
template <class Config, class Index, class Body>
DEVICE Index first_key(const Body &body, const RowTile<Index> &tile, Index query) {
  Index first = 0;
  if constexpr (Config::window > 0) {
    const Index oldest = query + tile.shift - (Config::window - 1);
    first = oldest > 0 ? oldest : 0;
  }
  if constexpr (Config::bounded_below) {
    const i64 own = body.first_key(tile.entry, query), keys = body.key_count();
    if (own > (i64)first)
      first = (Index)(own < keys ? own : keys);
  }
  return first;
}
template <class Config, class Index, class Body>
DEVICE Index last_key(const Body &body, const RowTile<Index> &tile, Index query) {
  Index last = (Index)body.key_count() - 1;
  if constexpr (Config::causal) {
    const Index newest = query + tile.shift;
    last = newest < last ? newest : last;
  }
  if constexpr (Config::bounded_above) {
    const i64 own = body.last_key(tile.entry, query);
    if (own < (i64)last)
      last = (Index)(own >= 0 ? own : -1);
  }
  return last;
}

// Keys first ... end - 1: no row of the tile looks at others. At those from `inner` to inner_end - 1 all
// look.
template <class Index>
struct KeyRange {
  Index first, end;
  Index inner, inner_end;
};
// Where queries have keys of their own it is called by all lanes of a warp, after pdl_wait() unless
// Config::bounds_before_wait.
template <class Config, class Index, class Body>
DEVICE KeyRange<Index> key_range(const Body &body, const RowTile<Index> &tile, int rows) {
  const Index from = query_of(body, tile.row0),
              to = query_of(body, row_or_last(tile, tile.row0 + (rows - 1)));
  KeyRange<Index> range;
  if constexpr (is_bounded<Config>) {
    const i32 keys = (i32)body.key_count();
    i32 first = keys, end = 0, inner = 0, inner_end = keys;
    for (Index query = from + lane_of_warp(); query <= to; query += 32) {
      const i32 oldest = (i32)first_key<Config>(body, tile, query),
                past = (i32)last_key<Config>(body, tile, query) + 1;
      first = oldest < first ? oldest : first;
      inner = oldest > inner ? oldest : inner;
      end = past > end ? past : end;
      inner_end = past < inner_end ? past : inner_end;
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      const i32 a = shuffle_xor(first, mask), b = shuffle_xor(inner, mask);
      const i32 c = shuffle_xor(end, mask), d = shuffle_xor(inner_end, mask);
      first = a < first ? a : first;
      inner = b > inner ? b : inner;
      end = c > end ? c : end;
      inner_end = d < inner_end ? d : inner_end;
    }
    range = {first, end, inner, inner_end};
  } else {
    range = {first_key<Config>(body, tile, from), last_key<Config>(body, tile, to) + 1,
             first_key<Config>(body, tile, to), last_key<Config>(body, tile, from) + 1};
  }
  return range;
}

// What acc_o is multiplied with to become the result of a row of `head`: 0 where there are no keys at all.
// Row_max is a score.
template <class Config, class Body>
DEVICE f32 inverse_row_sum(const Body &body, i64 entry, i64 head, f32 row_max, f32 row_sum) {
  if constexpr (Config::has_sink)
    return row_max == -inf_f32() ? 0.f : 1.f / (row_sum + exp_(body.sink(entry, head) - row_max));
  const bool is_zero = Config::zero_masked_rows || body.key_count() == 0;
  return row_max == -inf_f32() ? (is_zero ? 0.f : nan_f32()) : 1.f / row_sum;
}

template <class Config>
constexpr bool is_masked = !same_type<typename Config::Mask, void>;
// A mask's element in a register.
template <class T>
struct in_register {
  using type = f32;
};
template <>
struct in_register<bool> {
  using type = bool;
};
template <class T>
using mask_value = typename in_register<T>::type;
// The mask of one row, or nothing.
template <class Config, bool Masked = is_masked<Config>>
struct MaskRow {
  using Value = bool;
  template <class Body>
  DEVICE void find(const Body &, i64, i64, i64) {}
  template <class Body>
  DEVICE Value at(const Body &, i64, i64) const {
    return true;
  }
};
template <class Config>
struct MaskRow<Config, true> {
  using Value = mask_value<typename Config::Mask>;
  const typename Config::Mask *row;
  template <class Body>
  DEVICE void find(const Body &body, i64 entry, i64 head, i64 query) {
    row = body.mask_row(entry, head, query);
  }
  // Keys from `end` on have none.
  template <class Body>
  DEVICE Value at(const Body &body, i64 key, i64 end) const {
    if constexpr (same_type<typename Config::Mask, bool>)
      return key < end ? load(body.mask(row, key)) : false;
    else
      return key < end ? to_f32(load(body.mask(row, key))) : 0.f;
  }
};
template <class Config, class Body, int N, class Mask>
DEVICE void finish_scores(const Body &body, f32 (&s)[N], const Mask (&mask)[N]) {
  if constexpr (is_masked<Config>)
    body.score(s, mask);
  else
    body.score(s);
}
