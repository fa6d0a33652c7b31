#pragma once
// Of attention_latent.cuh: what a block has in shared memory, which keys it takes, how they come there, and
// what it leaves for attention_latent_merge.cuh.

#include "attention_decode.cuh"
#include "prefill_tma_tiles.cuh"
#include "ring_place.cuh"

template <class Config>
struct LatentBlock {
  using T = typename Config::Query;
  using Shape = PrefillShape<Config, true>;
  static constexpr int rows = 64, keys = 2 * Config::tile_keys;
  static constexpr int warps = 8, threads = 32 * warps; // that multiply
  static constexpr int boxes = Shape::key_pitch / 64, value_boxes = Config::value_depth / 64;
  static constexpr int box = 64 * keys; // elements, of 64 columns
  static constexpr int values_at = Config::values_in_keys ? 0 : boxes * box;
  static constexpr int all_boxes = boxes + (Config::values_in_keys ? 0 : value_boxes);
  static constexpr int stage_size = all_boxes * box;
  static constexpr int multiplying_registers = 232, loading_registers = 40; // of a thread; 168 at first
  static constexpr int query_size = rows * Shape::key_pitch;
  static constexpr int fragments = Config::value_depth / 16; // of a thread: two warpgroups share the columns
  static constexpr int blocks = cluster_blocks<Config::cluster>;
  static constexpr int own_fragments = (fragments + blocks - 1) / blocks; // that a block finishes, at most
  static constexpr int barriers = 2 * Config::stages + 2;
  static_assert((blocks - 1) * own_fragments * threads * 16 + 2 * blocks * rows * 4 <=
                    2 * Config::stages * stage_size,
                "what other blocks send takes the place of the tiles");

  u64 *full, *empty;  // of each stage
  u64 *arrived, *met; // of what other blocks send; of the warps that multiply
  T *queries, *tiles, *weights;
  f32 *exchanged; // of the rows, by each warpgroup

  DEVICE LatentBlock(u64 *barriers, f32 *exchanged, T *memory)
      : full(barriers), empty(barriers + Config::stages), arrived(empty + Config::stages), met(arrived + 1),
        queries(memory), tiles(memory + query_size), weights(tiles + Config::stages * stage_size),
        exchanged(exchanged) {}
  DEVICE void init(int rank) const {
    for (int i = 0; i < Config::stages; ++i) {
      mbarrier_init(full + i, 1);
      mbarrier_init(empty + i, warps);
    }
    mbarrier_init(arrived, 1);
    mbarrier_init(met, warps);
    fence_mbarrier_init();
    const int own = (fragments + blocks - 1 - rank) / blocks;
    if constexpr (blocks > 1)
      mbarrier_arrive_expect(arrived, (u32)((blocks - 1) * (own * threads * 16 + 2 * rows * 4)));
  }
  DEVICE void await(const RingPlace &at) const { mbarrier_wait(full + at.stage, at.parity); }
  DEVICE const T *tile(const RingPlace &at) const { return tiles + at.stage * stage_size; }
};

// What a cluster found, in memory: sums of values relative to the rows' largest scores among its keys. Float:
// f32, or const f32.
template <class Config, class Float>
struct LatentPartial {
  static constexpr int rows = 64, words = rows * (Config::value_depth + 2);
  Float *acc_o, *row_max, *row_sum;
  DEVICE LatentPartial(Float *scratch, i64 number)
      : acc_o(scratch + number * words), row_max(acc_o + rows * Config::value_depth),
        row_sum(row_max + rows) {}
};

// The keys of a block, number `part` of `parts` that share them.
struct LatentKeys {
  int first, end;
};
template <class Config>
DEVICE LatentKeys keys_of_part(const KeyRange<int> &range, int part, int parts) {
  constexpr int tile = LatentBlock<Config>::keys;
  const int begin = first_of_box<Config>(range.first),
            tiles = range.end > range.first ? (range.end - begin + tile - 1) / tile : 0;
  const int first = begin + tiles * part / parts * tile, end = begin + tiles * (part + 1) / parts * tile;
  return {first, end < range.end ? end : range.end};
}

// Loads a tile of keys from j0 on, box by box. By a warp.
template <class Config>
DEVICE void load_latent_tile(typename Config::Query *to, u64 *full, const RowTile<int> &tile, int j0,
                             const TensorMap &key_map, const TensorMap &rest_map,
                             const TensorMap &value_map) {
  using Block = LatentBlock<Config>;
  auto load = [&](int box, const TensorMap &map, int column) {
    tma_load_tile(to + box * Block::box, map, full, column, j0, (i32)tile.kv_head, (i32)tile.entry);
  };
  for (int b = (int)lane_id(); b < Block::all_boxes; b += 32)
    if (b >= Block::boxes)
      load(b, value_map, 64 * (b - Block::boxes));
    else if (64 * b < Config::first_columns)
      load(b, key_map, 64 * b);
    else
      load(b, rest_map, 64 * b - Config::first_columns);
}
// The same from pages: zeros behind the last key, which are of no page.
template <class Config, class Body>
DEVICE void load_latent_pages(const Body &body, typename Config::Query *to, u64 *full,
                              const RowTile<int> &tile, int j0, int end, const TensorMap &key_map,
                              const TensorMap &value_map) {
  using Block = LatentBlock<Config>;
  constexpr int pieces = Block::keys / Config::page_box; // of a box
  const auto keys = stored_keys<Config>(body, tile.entry, tile.kv_head);
  for (int i = (int)lane_id(); i < Block::all_boxes * pieces; i += 32) {
    const int box = i / pieces, row = i % pieces * Config::page_box, j = j0 + row;
    const i64 page = j < end ? keys.page_number(j) : keys.pages;
    const bool isKey = box < Block::boxes;
    tma_load_tile(to + box * Block::box + row * 64, isKey ? key_map : value_map, full,
                  64 * (isKey ? box : box - Block::boxes), (i32)((u32)j % (u32)Config::page_size),
                  (i32)tile.kv_head, (i32)page);
  }
}
// All of the block's. By a warp. `end`: of all keys that the tile's rows look at.
template <class Config, class Body>
DEVICE void load_latent_keys(const Body &body, const LatentBlock<Config> &block, const RowTile<int> &tile,
                             const LatentKeys &keys, int end, const TensorMap &key_map,
                             const TensorMap &rest_map, const TensorMap &value_map) {
  using Block = LatentBlock<Config>;
  RingPlace at;
  for (int j0 = keys.first; j0 < keys.end; j0 += Block::keys) {
    u64 *full = block.full + at.stage;
    auto *const to = block.tiles + at.stage * Block::stage_size;
    mbarrier_wait(block.empty + at.stage, at.parity ^ 1u);
    if (lane_id() == 0)
      mbarrier_arrive_expect(full, (u32)(2 * Block::stage_size));
    warp_barrier();
    if constexpr (is_paged<Config>)
      load_latent_pages<Config>(body, to, full, tile, j0, end, key_map, value_map);
    else
      load_latent_tile<Config>(to, full, tile, j0, key_map, rest_map, value_map);
    at.template advance<Config::stages>();
  }
}
