#pragma once
// What the attention kernels of a few rows share. A cluster takes a tile of rows of one key/value head. Its
// blocks split the keys, and the warps of a block split the block's keys; their partial results are merged at
// the end. The grid does not depend on the number of keys. Of a Config these kernels also need
//   warps      of a block
//   cluster    blocks of a cluster; where a GPU has no clusters, the first block of each does all the work
// Where it says `makes_heads = true`, new keys and new values are not there yet: the kernel is given a
// functor `heads` that makes them first. See attention_decode_heads.cuh. Then it has
//   makes_queries   nor are queries: the functor makes them too, and query() is not called
//   extends_keys    the new keys, as many as queries, come after all others
//   keeps_new_rows  if so: new keys and values are made in shared memory, at most `new_rows` of them. The
//                   kernel reads them there; one block of each head writes them into the cache, at
//                   body.new_key_rows(entry, kv_head) and new_value_rows, which begin at key 0
//   keys_before_wait   if so: no kernel that may still run writes the caches
// Where it says `bounds_before_wait = true`, no kernel that may still run writes what last_key() and
// first_key() read.

#include "attention_rows.cuh"
#include "clusters.cuh"
#include "tma.cuh"

struct DecodeTile : RowTile<i64> {
  KeyRange<i64> keys; // of all blocks of the cluster
  int rank;           // this block's in the cluster
};
template <class Config, class Body>
DEVICE DecodeTile decode_tile(const Body &body, int rows) {
  DecodeTile tile;
  static_cast<RowTile<i64> &>(tile) = row_tile<i64>(body, block_x() / (u32)Config::cluster, rows);
  tile.keys = key_range<Config>(body, tile, rows);
  if constexpr (is_paged<Config>)
    // The keys of a warp's turn are of one page, where 16 divides pages.
    tile.keys.first -= tile.keys.first % 16;
  tile.rank = Config::cluster > 1 ? (int)cluster_rank() : 0;
  return tile;
}
template <class Config>
DEVICE bool has_no_work() {
  return Config::cluster > 1 && cluster_blocks<Config::cluster> == 1 && block_x() % (u32)Config::cluster != 0;
}

// For kernels whose operands are all there.
struct NoHeads {};
// Whether the kernel itself may have written rows of the cache that it reads there.
template <class Config>
constexpr bool reads_own_rows = Config::makes_heads && !Config::keeps_new_rows;
// From one row in shared memory to the next: they begin at different banks.
template <class T, int Depth>
constexpr int row_pitch = Depth + 16 / (int)sizeof(T);
template <class Config>
constexpr int query_pitch = row_pitch<typename Config::Query, Config::depth>;

// What a block has made in shared memory; null where it makes none.
template <class Config>
struct MadeRows {
  typename Config::Query *queries = nullptr; // from the tile's first row on
  typename Config::Key *keys = nullptr;      // the new ones
  typename Config::Value *values = nullptr;

  DEVICE const typename Config::Query *query(const DecodeTile &tile, i64 row) const {
    return queries + (row - tile.row0) * query_pitch<Config>;
  }
};

// New rows of a head into the cache, by one warp. Rows are multiples of eight elements.
template <int Depth, class T>
DEVICE void write_new_rows(T *to, i64 stride, const T *from, int count) {
  constexpr int vectors = Depth / 8;
  for (int i = lane_of_warp(); i < count * vectors; i += 32)
    store_vec(to + i / vectors * stride + i % vectors * 8,
              load_vec<T, 8>(from + i / vectors * row_pitch<T, Depth> + i % vectors * 8));
}

// Rows that the tile has, of Rows at most.
template <int Rows>
DEVICE int rows_of_tile(const DecodeTile &tile) {
  return tile.last_row - tile.row0 < Rows ? (int)(tile.last_row - tile.row0) + 1 : Rows;
}

// Has the block's warps make what the tile needs and is not there yet, after pdl_wait().
template <class Config, int Rows, class Body, class Heads>
DEVICE MadeRows<Config> make_heads(const Body &body, const DecodeTile &tile, const Heads &heads) {
  MadeRows<Config> made;
  if constexpr (Config::makes_heads) {
    using Key = typename Config::Key;
    using Value = typename Config::Value;
    constexpr int key_pitch = row_pitch<Key, Config::depth>,
                  value_pitch = row_pitch<Value, Config::value_depth>;
    const int rows_here = rows_of_tile<Rows>(tile);
    if constexpr (Config::makes_queries) {
      SHARED(typename Config::Query, queries, Rows * query_pitch<Config>);
      made.queries = queries;
    }
    if constexpr (Config::keeps_new_rows) {
      SHARED(Key, keys, Config::new_rows * key_pitch);
      SHARED(Value, values, Config::new_rows * value_pitch);
      made.keys = keys;
      made.values = values;
    }
    // Where row 0 of head 0, and key 0, would be.
    auto *const queries = made.queries - (tile.kv_head * body.group() + tile.row0) * query_pitch<Config>;
    Key *const keys = made.keys - tile.shift * key_pitch;
    Value *const values = made.values - tile.shift * value_pitch;
    if constexpr (Config::makes_queries && Config::keeps_new_rows)
      heads(tile, rows_here, queries, keys, values);
    else if constexpr (Config::makes_queries)
      heads(tile, rows_here, queries);
    else if constexpr (Config::keeps_new_rows)
      heads(tile, keys, values);
    else
      heads(tile);
    barrier();
    if constexpr (Config::keeps_new_rows)
      if (tile.rank == 0 && tile.row0 == 0 && warp_of_block() == Config::warps - 1) {
        const int count = (int)body.query_count();
        write_new_rows<Config::depth>(body.new_key_rows(tile.entry, tile.kv_head) +
                                          tile.shift * body.key_stride(),
                                      body.key_stride(), made.keys, count);
        write_new_rows<Config::value_depth>(body.new_value_rows(tile.entry, tile.kv_head) +
                                                tile.shift * body.value_stride(),
                                            body.value_stride(), made.values, count);
      }
  }
  return made;
}

// What each warp of the block found. Row r of warp w is at w * Rows + r; a row of acc_o has `pitch` columns.
// Sums are relative to the largest score of the block.
template <class Config, int Rows>
struct WarpResults {
  static constexpr int pitch = Config::value_depth + 4;
  static constexpr int acc_bytes = Config::warps * Rows * pitch * 4; // of dynamic shared memory
  f32 *row_max, *row_sum, *acc_o;

  // The factor by which a warp's acc_o, relative to `own_max`, becomes relative to the largest score of the
  // block.
  DEVICE f32 rescale_to_block(int r, f32 own_max) const {
    f32 largest = row_max[r];
#pragma unroll
    for (int w = 1; w < Config::warps; ++w)
      largest = max_nan(largest, row_max[w * Rows + r]);
    return weight_of(own_max, largest);
  }
};
template <class Config, int Rows>
DEVICE WarpResults<Config, Rows> warp_results() {
  SHARED(f32, row_max, Config::warps * Rows);
  SHARED(f32, row_sum, Config::warps * Rows);
  return {row_max, row_sum, reinterpret_cast<f32 *>(dynamic_shared())};
}

// What the blocks of a cluster found. Block `rank` finishes the rows r with r % blocks == rank.
template <class Config, int Rows>
struct BlockResults {
  static constexpr int blocks = cluster_blocks<Config::cluster>, own_rows = (Rows + blocks - 1) / blocks;
  f32 *row_max, *row_sum; // of block b's row r at b * Rows + r
  f32 *acc_o;             // of block b's own row i at (b * own_rows + i) * value_depth
  u64 *arrived;           // mbarrier: what all blocks send to this one is there

  DEVICE void send(f32 *to, int rank, f32 value) const {
    if constexpr (blocks > 1)
      send_in_cluster(to, (u32)rank, arrived, value);
    else
      *to = value;
  }
  DEVICE void await(const DecodeTile &tile) const {
    if constexpr (blocks == 1)
      barrier();
    else if (tile.rank < rows_of_tile<Rows>(tile))
      mbarrier_wait(arrived, 0);
  }
};
// Expects what merge_rows() sends. When a block starts, once.
template <class Config, int Rows>
DEVICE BlockResults<Config, Rows> start_merge(const DecodeTile &tile) {
  using Results = BlockResults<Config, Rows>;
  SHARED(f32, row_max, Results::blocks * Rows);
  SHARED(f32, row_sum, Results::blocks * Rows);
  SHARED(f32, acc_o, Results::blocks * Results::own_rows * Config::value_depth);
  SHARED(u64, arrived, 1);
  if constexpr (Results::blocks > 1)
    if (thread_x() == 0) {
      const int own = (rows_of_tile<Rows>(tile) + Results::blocks - 1 - tile.rank) / Results::blocks;
      mbarrier_init(arrived, 1);
      fence_mbarrier_init();
      mbarrier_arrive_expect(arrived,
                             (u32)(Results::blocks * own * (Config::value_depth + 2) * (int)sizeof(f32)));
    }
  cluster_arrive_relaxed();
  return {row_max, row_sum, acc_o, arrived};
}

// Each row goes to the block that finishes it.
template <class Config, int Rows>
DEVICE void send_rows(const DecodeTile &tile, int rows_here, const WarpResults<Config, Rows> &warps,
                      const BlockResults<Config, Rows> &to) {
  constexpr int blocks = BlockResults<Config, Rows>::blocks, width = Config::value_depth,
                threads = 32 * Config::warps;
  const int thread = (int)thread_x();
  if (thread < rows_here) {
    f32 row_max = -inf_f32(), row_sum = 0.f;
#pragma unroll
    for (int w = 0; w < Config::warps; ++w) {
      row_max = max_nan(row_max, warps.row_max[w * Rows + thread]);
      row_sum = row_sum + warps.row_sum[w * Rows + thread];
    }
    to.send(&to.row_max[tile.rank * Rows + thread], thread % blocks, row_max);
    to.send(&to.row_sum[tile.rank * Rows + thread], thread % blocks, row_sum);
  }
  for (int e = thread; e < rows_here * width; e += threads) {
    const int r = e / width, c = e % width;
    f32 sum = 0.f;
#pragma unroll
    for (int w = 0; w < Config::warps; ++w)
      sum = sum + warps.acc_o[(w * Rows + r) * warps.pitch + c];
    to.send(&to.acc_o[(tile.rank * to.own_rows + r / blocks) * width + c], r % blocks, sum);
  }
}
template <class Config, int Rows, class Body>
DEVICE void store_rows(const Body &body, const DecodeTile &tile, int rows_here,
                       const BlockResults<Config, Rows> &from) {
  constexpr int blocks = BlockResults<Config, Rows>::blocks, width = Config::value_depth,
                threads = 32 * Config::warps;
  for (int e = (int)thread_x(); e < from.own_rows * width; e += threads) {
    const int r = e / width * blocks + tile.rank, c = e % width;
    if (r >= rows_here)
      break;
    f32 row_max = -inf_f32(), row_sum = 0.f, acc_o = 0.f;
#pragma unroll
    for (int b = 0; b < blocks; ++b)
      row_max = max_nan(row_max, from.row_max[b * Rows + r]);
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      const f32 rescale = weight_of(from.row_max[b * Rows + r], row_max);
      row_sum = row_sum + rescale * from.row_sum[b * Rows + r];
      acc_o = acc_o + rescale * from.acc_o[(b * from.own_rows + e / width) * width + c];
    }
    const i64 row = tile.row0 + r;
    const i64 head = head_of(body, tile, row);
    body.store(tile.entry, head, query_of(body, row), c,
               Vec<f32, 1>{acc_o * inverse_row_sum<Config>(body, tile.entry, head, row_max, row_sum)});
  }
}
// Merges what all warps of the cluster found and stores the rows. Each thread has written its share of
// WarpResults.
template <class Config, int Rows, class Body>
DEVICE void merge_rows(const Body &body, const DecodeTile &tile, const WarpResults<Config, Rows> &warps,
                       const BlockResults<Config, Rows> &blocks) {
  cluster_wait(); // until all have started
  barrier();
  const int rows_here = rows_of_tile<Rows>(tile);
  send_rows(tile, rows_here, warps, blocks);
  blocks.await(tile);
  store_rows(body, tile, rows_here, blocks);
}
