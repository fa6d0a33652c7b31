#pragma once
// Of attention_prefill_tma.cuh: what a block has in shared memory, and which tiles of rows it takes in which
// order.

#include "attention_prefill_sm90.cuh"
#include "tma.cuh"

// Places in shared memory, each with an mbarrier that is passed when it is full and one when it is empty.
template <int Places>
struct TileRing {
  static constexpr int barriers = 2 * Places;
  u64 *full, *empty;
  int place = 0;
  u32 parity = 0;

  DEVICE explicit TileRing(u64 *barriers) : full(barriers), empty(barriers + Places) {}
  // Each place is filled and emptied by so many arrivals.
  DEVICE void init(u32 fills, u32 empties) const {
    for (int i = 0; i < Places; ++i) {
      mbarrier_init(full + i, fills);
      mbarrier_init(empty + i, empties);
    }
  }
  DEVICE void await_full() const { mbarrier_wait(full + place, parity); }
  DEVICE void await_empty() const { mbarrier_wait(empty + place, parity ^ 1); }
  // By a lane of each warp that has read the place.
  DEVICE void release() const {
    if (lane_id() == 0)
      mbarrier_arrive(empty + place);
  }
  DEVICE void advance() {
    if (++place == Places) {
      place = 0;
      parity ^= 1;
    }
  }
};

template <class Config>
struct PrefillTma : PrefillShape<Config, true> {
  using Tiles = PrefillShape<Config, true>;
  using T = typename Config::Query;
  static constexpr int stages = 2; // tiles of keys, and as many of values
  static constexpr int groups = Config::warps / 4, threads = Tiles::threads + 128, query_copiers = 96;
  static constexpr int query_tile = Tiles::rows * Tiles::key_pitch;
  static constexpr int shared_bytes = 2 * (Config::query_stages * query_tile +
                                           stages * (Tiles::key_tile + Tiles::value_tile)) +
                                      1024;
  // Of a thread that copies, and one that multiplies.
  static constexpr bool copies_little = Config::queries_mapped && !is_bounded<Config> && !is_paged<Config>;
  static constexpr int copying_registers = groups == 3 ? 32 : copies_little ? 24 : 40,
                       registers = groups == 3 ? 160 : copies_little ? 240 : 232;
  using QueryRing = TileRing<Config::query_stages>;
  using KeyRing = TileRing<stages>;
  static constexpr int barriers = QueryRing::barriers + 2 * KeyRing::barriers + groups;

  QueryRing queries;
  KeyRing keys, values;
  u64 *turns; // of the warpgroups
  T *query_tiles, *key_tiles, *value_tiles;

  DEVICE PrefillTma(u64 *barriers, T *tiles)
      : queries(barriers), keys(barriers + QueryRing::barriers), values(keys.full + KeyRing::barriers),
        turns(values.full + KeyRing::barriers), query_tiles(tiles),
        key_tiles(tiles + Config::query_stages * query_tile),
        value_tiles(key_tiles + stages * Tiles::key_tile) {}
  DEVICE void init() const {
    queries.init(Config::queries_mapped ? 1 : query_copiers, Config::warps);
    keys.init(1, Config::warps);
    values.init(1, Config::warps);
    for (int i = 0; i < groups; ++i)
      mbarrier_init(turns + i, 4);
  }
};

// Boxes of rows begin at multiples of their size.
template <class Config>
DEVICE int first_of_box(int first) {
  if constexpr (is_paged<Config>)
    return first / Config::page_box * Config::page_box;
  else
    return first;
}

// Tiles of rows in the order in which the blocks take them, every other round backwards: of causal attention
// those that look at the most keys come first, and a block that got much gets little next. That order goes
// through all heads' keys again and again, so that heads come in sections of which the L2 keeps all.
template <class Config, class Body, bool Ragged = Config::ragged>
struct PrefillTiles {
  static constexpr int rows = PrefillShape<Config, true>::rows;
  const Body &body;
  u32 tiles, heads, section, round = 0; // tiles: of a head
  RowTile<int> tile;
  KeyRange<int> range = {};
  int first = 0, end = 0; // keys: one at least, though the rows may not look at it

  DEVICE explicit PrefillTiles(const Body &body)
      : body(body), tiles((u32)((body.query_count() * body.group() + rows - 1) / rows)),
        heads((u32)(body.kv_heads() * body.batch())), section(heads) {
    const u32 keys = (u32)body.key_count(), cached = (u32)Config::cached_keys;
    if (keys == 0 || (u64)heads * keys <= cached) // no division where a launch is short
      return;
    const u32 fitting = keys < cached ? cached / keys : 1, sections = (heads + fitting - 1) / fitting;
    section = (heads + sections - 1) / sections;
  }
  // False behind the last. By all lanes of a warp where queries have keys of their own.
  DEVICE bool next() {
    const u32 blocks = grid_dim_x(),
              number = round * blocks + (round % 2 ? blocks - 1 - block_x() : block_x());
    if (number >= tiles * heads) // only in the last round
      return false;
    ++round;
    const u32 kv_heads = (u32)body.kv_heads();
    u32 head, row_tile;
    if constexpr (Config::causal) {
      u32 first = 0, in_section = section, place = number;
      if (section < heads) {
        first = number / (section * tiles) * section;
        in_section = heads - first < section ? heads - first : section;
        place = number - first * tiles;
      }
      head = first + place % in_section;
      row_tile = tiles - 1 - place / in_section;
    } else {
      head = number / tiles;
      row_tile = number % tiles;
    }
    tile.row0 = (int)row_tile * rows;
    tile.kv_head = head % kv_heads;
    tile.entry = head / kv_heads;
    tile.last_row = (int)(body.query_count() * body.group()) - 1;
    tile.shift = (int)body.key_count() - (int)body.query_count();
    range = key_range<Config>(body, tile, rows);
    const bool isEmpty = range.first >= range.end;
    first = isEmpty ? 0 : first_of_box<Config>(range.first);
    end = isEmpty ? 1 : range.end;
    return true;
  }
};
// Of a ragged Config the tiles of for_each_tile() in attention_prefill.cuh.
template <class Config, class Body>
struct PrefillTiles<Config, Body, true> {
  static constexpr int rows = PrefillShape<Config, true>::rows;
  const Body &body;
  const int group, tokens, all;
  u32 item, block = 0, number = 0;
  int token = 0, token_end = 0;
  RowTile<int> tile;
  KeyRange<int> range = {};
  int first = 0, end = 0;

  DEVICE explicit PrefillTiles(const Body &body)
      : body(body), group((int)body.group()), tokens(rows / group), all((int)body.query_count()),
        item(block_x()) {}
  DEVICE bool next() {
    constexpr u32 blocks = (u32)Config::tile_blocks;
    const u32 kv_heads = (u32)body.kv_heads(), items = (u32)((all + tokens - 1) / tokens) * kv_heads * blocks;
    for (;;) {
      if (token >= token_end) {
        if (item >= items)
          return false;
        token = (int)(item / (blocks * kv_heads)) * tokens;
        token_end = token + tokens < all ? token + tokens : all;
        tile.kv_head = item / blocks % kv_heads;
        block = item % blocks;
        number = 0;
        item += grid_dim_x();
      }
      const int begin = token;
      token = next_sequence(body, begin, token_end);
      if (number++ % blocks != block)
        continue;
      tile.row0 = begin * group;
      tile.last_row = token * group - 1;
      tile.shift = 0;
      tile.entry = begin;
      range = key_range<Config>(body, tile, rows);
      const bool isEmpty = range.first >= range.end;
      first = isEmpty ? 0 : first_of_box<Config>(range.first);
      end = isEmpty ? 1 : range.end;
      return true;
    }
  }
};
