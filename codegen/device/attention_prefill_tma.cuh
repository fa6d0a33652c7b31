#pragma once
// Attention of many rows by warpgroups, on sm_90a, with keys and values by TMA: see attention_prefill.cuh.
// The kernel is persistent: a block takes one tile of rows after the other. The producer warpgroup loads
// tiles ahead of their use; each consumer has 64 rows. While a consumer computes the softmax of a tile of
// scores, tensor cores run its previous P·V, and what the other consumers have issued.
//
// row_tiles is 1, and `warps` are those that multiply. A Config also has
//   query_stages     tiles of queries in shared memory
//   queries_mapped   TMA copies them: else three warps do
//   cached_keys      rows of keys and values, of one head each, that the L2 keeps beside what else it holds
//   page_box         with pages: rows that TMA copies at a time, which divide a page and a tile; what a page
//                    holds between the last key and the box's end must be finite numbers

#include "prefill_tma_tiles.cuh"

// The keys or values from j0 on, `pitch` columns of them, into the next place of their ring.
template <class Config, class Ring, class Tile>
DEVICE void copy_keys(Ring &ring, typename Config::Query *tiles, const TensorMap &map, int pitch, int j0,
                      const Tile &tile) {
  u64 *full = ring.full + ring.place;
  ring.await_empty();
  mbarrier_arrive_expect(full, (u32)(2 * Config::tile_keys * pitch));
  for (int column = 0; column < pitch; column += 64)
    tma_load_tile(tiles + (ring.place * pitch + column) * Config::tile_keys, map, full, column, j0,
                  (i32)tile.kv_head, (i32)tile.entry);
  ring.advance();
}

// The same box by box of their pages, by all lanes of a warp; zeros in the boxes behind the last key, which
// are of no page.
template <class Config, class Ring, class Rows, class Tile>
DEVICE void copy_pages(Ring &ring, typename Config::Query *tiles, const TensorMap &map, int pitch, int j0,
                       int end, const Rows &rows, const Tile &tile) {
  constexpr int boxes = Config::tile_keys / Config::page_box;
  u64 *full = ring.full + ring.place;
  ring.await_empty();
  if (lane_id() == 0)
    mbarrier_arrive_expect(full, (u32)(2 * Config::tile_keys * pitch));
  warp_barrier();
  for (int i = (int)lane_id(); i < boxes * (pitch / 64); i += 32) {
    const int column = i / boxes * 64, row = i % boxes * Config::page_box, j = j0 + row;
    const i64 page = j < end ? rows.page_number(j) : rows.pages;
    tma_load_tile(tiles + (ring.place * pitch + column) * Config::tile_keys + row * 64, map, full, column,
                  (i32)((u32)j % (u32)Config::page_size), (i32)tile.kv_head, (i32)page);
  }
  ring.advance();
}

// The first lane of a warp asks for tiles of keys and values, and those of queries that TMA takes; all lanes
// for pages.
template <class Config, class Body>
DEVICE void copy_tiles(const Body &body, PrefillTma<Config> block, const TensorMap &query_map,
                       const TensorMap &key_map, const TensorMap &value_map) {
  using Block = PrefillTma<Config>;
  PrefillTiles<Config, Body> rows(body);
  while (rows.next()) {
    if (is_bounded<Config> && !is_paged<Config> && lane_id() != 0)
      continue;
    if (Config::queries_mapped && lane_id() == 0) {
      const int query = query_of(body, rows.tile.row0);
      u64 *full = block.queries.full + block.queries.place;
      block.queries.await_empty();
      mbarrier_arrive_expect(full, 2 * Block::query_tile);
      for (int column = 0; column < Block::key_pitch; column += 64)
        tma_load_tile(block.query_tiles + block.queries.place * Block::query_tile + column * Block::rows,
                      query_map, full, column, (i32)(rows.tile.kv_head * body.group()),
                      Config::ragged ? 0 : query, Config::ragged ? query : (i32)rows.tile.entry);
      block.queries.advance();
    }
    if constexpr (is_paged<Config>) {
      const auto key_rows = stored_keys<Config>(body, rows.tile.entry, rows.tile.kv_head);
      const auto value_rows = stored_values<Config>(body, rows.tile.entry, rows.tile.kv_head);
      for (int j0 = rows.first; j0 < rows.end; j0 += Config::tile_keys) {
        copy_pages<Config>(block.keys, block.key_tiles, key_map, Block::key_pitch, j0, rows.end, key_rows,
                           rows.tile);
        copy_pages<Config>(block.values, block.value_tiles, value_map, Block::value_pitch, j0, rows.end,
                           value_rows, rows.tile);
      }
      continue;
    }
    for (int j0 = rows.first; j0 < rows.end; j0 += Config::tile_keys) {
      copy_keys<Config>(block.keys, block.key_tiles, key_map, Block::key_pitch, j0, rows.tile);
      copy_keys<Config>(block.values, block.value_tiles, value_map, Block::value_pitch, j0, rows.tile);
    }
  }
}

// By the threads of three warps, `thread` of them.
template <class Config, class Body>
DEVICE void copy_query_tiles(const Body &body, PrefillTma<Config> block, int thread) {
  using Block = PrefillTma<Config>;
  PrefillTiles<Config, Body> rows(body);
  while (rows.next()) {
    block.queries.await_empty();
    copy_queries<Config, Block, Block::query_copiers>(
        block.query_tiles + block.queries.place * Block::query_tile, body, rows.tile, thread);
    cp_async_commit();
    cp_async_wait<0>();
    fence_proxy_async();
    mbarrier_arrive(block.queries.full + block.queries.place);
    block.queries.advance();
  }
}

// Warpgroups start products one after the other, so that one multiplies while another makes weights.
template <class Config>
struct PrefillTurns {
  static constexpr int groups = Config::warps / 4;
  u64 *turns;
  int group;
  u32 parity = 0;

  DEVICE PrefillTurns(u64 *turns, int group) : turns(turns), group(group) {
    if (group == groups - 1)
      pass();
  }
  DEVICE void await() {
    mbarrier_wait(turns + group, parity);
    parity ^= 1;
  }
  DEVICE void pass() const {
    if (lane_id() == 0)
      mbarrier_arrive(turns + (group == groups - 1 ? 0 : group + 1));
  }
};

template <class Config, class Body>
DEVICE void multiply_tiles(const Body &body, PrefillTma<Config> block, int group) {
  using Block = PrefillTma<Config>;
  PrefillTiles<Config, Body> rows(body);
  PrefillTurns<Config> turns(block.turns, group);
  PrefillSoftmax<Config, typename Block::Tiles, typename Config::Query> softmax;
  f32 score[1][Config::tile_keys / 8][4], rescale[1][2];
  auto multiply_keys = [&] {
    start_scores<Config>(score[0], block.query_tiles + block.queries.place * Block::query_tile,
                         block.key_tiles + block.keys.place * Block::key_tile, group);
  };
  auto multiply_values = [&] {
    start_values<Config>(softmax.acc_o[0], softmax.weight[0],
                         block.value_tiles + block.values.place * Block::value_tile);
  };
  auto weigh = [&](int j0) {
    fence_operand(score[0]);
    block.keys.release();
    block.keys.advance();
    finish_tile<Config>(score, body, rows.tile, rows.range, j0);
    softmax.to_weights(score, rescale);
  };
  auto end_values = [&] {
    warpgroup_wait<0>();
    fence_operand(softmax.acc_o[0]);
    block.values.release();
    block.values.advance();
  };
  while (rows.next()) {
    softmax.start();
    block.queries.await_full();
    block.keys.await_full();
    warp_barrier();
    multiply_keys();
    warpgroup_wait<0>();
    weigh(rows.first);
    softmax.pack(score);
#pragma unroll 1
    for (int j0 = rows.first + Config::tile_keys; j0 < rows.end; j0 += Config::tile_keys) {
      block.keys.await_full();
      turns.await();
      warp_barrier();
      multiply_keys();
      block.values.await_full();
      warp_barrier();
      multiply_values();
      turns.pass();
      warpgroup_wait<1>();
      weigh(j0);
      block.values.await_full(); // again: the compiler would make the weights behind the next wait
      end_values();
      softmax.multiply(rescale);
      softmax.pack(score);
    }
    block.queries.release();
    block.queries.advance();
    block.values.await_full();
    warp_barrier();
    multiply_values();
    end_values();
    softmax.store(body, rows.tile);
  }
}

// Without keys.
template <class Config, class Body>
DEVICE void store_empty_sums(const Body &body) {
  using Block = PrefillTma<Config>;
  constexpr int per_row = Config::value_depth / 8;
  const f32 result = inverse_row_sum<Config>(body, 0, 0, -inf_f32(), 0.f);
  for (PrefillTiles<Config, Body> rows(body); rows.next();)
#pragma unroll 1
    for (int i = (int)thread_x(); i < Block::rows * per_row; i += Block::threads)
      if (const int row = rows.tile.row0 + i / per_row; row <= rows.tile.last_row)
        body.store(rows.tile.entry, head_of(body, rows.tile, row), query_of(body, row), i % per_row * 8,
                   Vec<f32, 8>{result, result, result, result, result, result, result, result});
}

// Boxes of the maps: rows of a tile in order, where TMA takes queries (queries_mapped), of 64 columns;
// tile_keys rows, or page_box.
template <class Config, class Body>
DEVICE void attention_prefill_tma(const Body &body, const TensorMap &query_map, const TensorMap &key_map,
                                  const TensorMap &value_map) {
  using Block = PrefillTma<Config>;
  SHARED(u64, barriers, Block::barriers);
  const PrefillTma<Config> block(barriers, reinterpret_cast<typename Config::Query *>(aligned_shared(1024)));
  const int thread = (int)thread_x(), warp = shuffle_index((i32)thread / 32, 0);
  if (thread == 0) {
    block.init();
    fence_mbarrier_init();
  }
  barrier();
  pdl_wait();
  pdl_launch_dependents();
  if (body.key_count() == 0)
    return store_empty_sums<Config>(body);
  if (warp < Config::warps) {
    more_registers<Block::registers>();
    multiply_tiles<Config>(body, block, warp / 4);
  } else {
    fewer_registers<Block::copying_registers>();
    if (warp == Config::warps && (is_bounded<Config> || is_paged<Config> || lane_id() == 0))
      copy_tiles<Config>(body, block, query_map, key_map, value_map);
    else if (warp > Config::warps && !Config::queries_mapped)
      copy_query_tiles<Config>(body, block, thread - 32 * (Config::warps + 1));
  }
}
// Where TMA does not take queries.
template <class Config, class Body>
DEVICE void attention_prefill_tma(const Body &body, const TensorMap &key_map, const TensorMap &value_map) {
  attention_prefill_tma<Config>(body, key_map, key_map, value_map);
}
