#pragma once
// Attention with large heads of keys that many query heads share, on sm_90a: latent attention (MLA) over its
// compressed cache, whose values are the keys' first columns. One cluster or several take a tile of 64 rows
// of one key/value head; their blocks split the keys, and the results of a cluster are merged at its end.
// Where there are several, they leave them in memory for attention_latent_merge.cuh. In a block each of two
// warpgroups makes weights of half of a tile's keys, and multiplies all of them with half of the values'
// columns; a warp of a third one asks TMA for tiles. What a tile is read for, scores and values, it is
// loaded for once.
//
// row_tiles is 1. A Config also has what attention_prefill.cuh says,
//   tile_keys        of a warpgroup: a tile has twice as many
//   cluster          blocks of a cluster; where a GPU has none, the first one of each does all the work
//   splits           clusters that share the keys of a tile of rows
//   stages           tiles of keys in shared memory, two at least
//   first_columns    of the keys' first tensor, a multiple of 64 if there is a second
//   values_in_keys   values are the keys' first columns; else they are loaded beside them
//   page_box         with pages, which then hold all columns: see attention_prefill_tma.cuh
// value_depth is a multiple of 128.

#include "latent_tiles.cuh"
#include "meet.cuh"

// The rows' largest scores and sums of weights of each block, and the accumulators that other blocks send, in
// the memory of the tiles when these have been read.
template <class Config>
struct LatentResults {
  using Block = LatentBlock<Config>;
  f32 *row_max, *row_sum; // of block b's row r at b * rows + r
  Vec<f32, 4> *parts;

  DEVICE explicit LatentResults(const Block &block)
      : row_max(reinterpret_cast<f32 *>(block.tiles)), row_sum(row_max + Block::blocks * Block::rows),
        parts(reinterpret_cast<Vec<f32, 4> *>(row_sum + Block::blocks * Block::rows)) {}
  // Fragment number `own` of those that a block finishes, of the block so many ranks after it, less one.
  DEVICE Vec<f32, 4> *part(int from, int own) const {
    return parts + (from * Block::own_fragments + own) * Block::threads + (int)thread_x();
  }
};

// The rows of a block. A thread has rows l / 4 (+ 8) of its warp's 16: scores of its warpgroup's keys, and
// accumulators of columns 8 n + 2 (l % 4) (+ 1) of its warpgroup's.
template <class Config>
struct LatentRows {
  using Block = LatentBlock<Config>;
  using T = typename Config::Query;
  const Block &block;
  const int group, line; // line: the first of the thread's rows
  WarpMeeting<Block::threads> all;
  PrefillWeights<Config, T> softmax;
  f32 score[1][Config::tile_keys / 8][4], rescale[1][2], acc_o[Block::fragments][4];

  DEVICE explicit LatentRows(const Block &block)
      : block(block), group(shuffle_index(warp_of_block() / 4, 0)),
        line(warp_of_block() % 4 * 16 + lane_of_warp() / 4), all{block.met, 0} {
    softmax.start();
#pragma unroll
    for (int n = 0; n < Block::fragments; ++n)
      acc_o[n][0] = acc_o[n][1] = acc_o[n][2] = acc_o[n][3] = 0.f;
  }

  DEVICE void start_scores(const RingPlace &at) {
    block.await(at);
    warp_barrier();
    const u64 queries = wgmma_unknown(wgmma_descriptor(block.queries, 128 * Block::rows)),
              keys = wgmma_descriptor(block.tile(at) + group * Config::tile_keys * 64, 2 * Block::box);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < Block::Shape::depth; k += 16)
      wgmma_rows<T>(score[0], wgmma_advance(queries, (u32)(k / 64 * 128 * Block::rows + k % 64 * 2)),
                    wgmma_advance(keys, (u32)(k / 64 * 2 * Block::box + k % 64 * 2)), k > 0);
    warpgroup_commit();
  }
  DEVICE void start_values(const RingPlace &at) {
    block.await(at);
    fence_operand(acc_o);
    warp_barrier();
    const u64 weights = wgmma_descriptor(block.weights, 128 * Block::rows),
              values = wgmma_descriptor(block.tile(at) + Block::values_at +
                                            group * (Block::value_boxes / 2) * Block::box,
                                        2 * Block::box);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < Block::keys; k += 16)
      wgmma_rows_by_depth<T>(acc_o, wgmma_advance(weights, (u32)(2 * k)),
                             wgmma_advance(values, (u32)(128 * k)), true);
    warpgroup_commit();
  }

  // Scores become weights relative to the rows' largest score, whichever warpgroup has it.
  template <class Body>
  DEVICE void weigh(const Body &body, const RowTile<int> &tile, const KeyRange<int> &range, int j0) {
    fence_operand(score[0]);
    RowTile<int> own = tile;
    own.row0 -= 64 * group; // rows are those of the first warpgroup
    finish_tile<Config>(score, body, own, range, j0 + group * Config::tile_keys);
    f32 largest[1][2];
    softmax.find_largest(score, largest);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (lane_of_warp() % 4 == 0)
        block.exchanged[group * Block::rows + line + 8 * half] = largest[0][half];
    all.meet();
#pragma unroll
    for (int half = 0; half < 2; ++half)
      largest[0][half] =
          max_nan(largest[0][half], block.exchanged[(1 - group) * Block::rows + line + 8 * half]);
    softmax.to_weights(score, largest, rescale);
    softmax.pack(score);
  }
  // When all warps have multiplied the last ones: they have met since, in weigh().
  DEVICE void store_weights() {
    constexpr int vectors = Config::tile_keys / 8; // of a row
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = line + 8 * half;
#pragma unroll
      for (int n = 0; n < vectors; ++n)
        *reinterpret_cast<u32 *>(block.weights + row * 64 + (group * vectors + n ^ row % 8) * 8 +
                                 lane_of_warp() % 4 * 2) = softmax.weight[0][n / 2][n % 2 * 2 + half];
    }
    fence_proxy_async();
    all.meet();
  }
  DEVICE void multiply_sums() {
    if (rescale[0][0] != 1.f || rescale[0][1] != 1.f) {
#pragma unroll
      for (int n = 0; n < Block::fragments; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc_o[n][e] = acc_o[n][e] * rescale[0][e / 2];
    }
  }

  DEVICE void release(const RingPlace &at) const {
    if (lane_id() == 0)
      mbarrier_arrive(block.empty + at.stage);
  }

  // All of the block's keys.
  template <class Body>
  DEVICE void add_keys(const Body &body, const RowTile<int> &tile, const KeyRange<int> &range,
                       const LatentKeys &keys) {
    if (keys.first >= keys.end)
      return;
    RingPlace at, next;
    start_scores(at);
    warpgroup_wait<0>();
    weigh(body, tile, range, keys.first);
    store_weights();
#pragma unroll 1
    for (int j0 = keys.first + Block::keys; j0 < keys.end; j0 += Block::keys) {
      next.template advance<Config::stages>();
      // Values first: while the next tile may still be on its way, the stage of this one is asked for anew.
      start_values(at);
      warpgroup_wait<0>();
      fence_operand(acc_o);
      release(at);
      start_scores(next);
      warpgroup_wait<0>();
      weigh(body, tile, range, j0);
      multiply_sums();
      store_weights();
      at = next;
    }
    start_values(at);
    warpgroup_wait<0>();
    fence_operand(acc_o);
  }
  // Each block finishes every so manieth fragment of all threads.
  DEVICE void send_sums(const LatentResults<Config> &results, int rank) const {
    if constexpr (Block::blocks > 1) {
#pragma unroll
      for (int n = 0; n < Block::fragments; ++n)
        if (const int owner = n % Block::blocks; owner != rank)
          send_in_cluster(results.part((rank + Block::blocks - owner) % Block::blocks - 1, n / Block::blocks),
                          (u32)owner, block.arrived, acc_o[n]);
    }
  }
  // `partial`: of the cluster, where several share the tile's keys.
  template <class Body>
  DEVICE void store(const Body &body, const RowTile<int> &tile, const LatentResults<Config> &results,
                    int rank, const LatentPartial<Config, f32> &partial) const {
    constexpr int blocks = Block::blocks;
    f32 factor[2][blocks]; // of each block's sums, by distance from this one
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = line + 8 * half, row = row_or_last(tile, tile.row0 + r);
      f32 largest = results.row_max[r], sum = 0.f;
#pragma unroll
      for (int b = 1; b < blocks; ++b)
        largest = max_nan(largest, results.row_max[b * Block::rows + r]);
#pragma unroll
      for (int b = 0; b < blocks; ++b)
        sum = sum +
              weight_of(results.row_max[b * Block::rows + r], largest) * results.row_sum[b * Block::rows + r];
      f32 inverse = 1.f;
      if constexpr (Config::splits == 1)
        inverse = inverse_row_sum<Config>(body, tile.entry, head_of(body, tile, row), largest, sum);
      else if (rank == 0 && group == 0 && lane_of_warp() % 4 == 0) {
        partial.row_max[r] = largest;
        partial.row_sum[r] = sum;
      }
#pragma unroll
      for (int d = 0; d < blocks; ++d)
        factor[half][d] =
            inverse * weight_of(results.row_max[(rank + d) % blocks * Block::rows + r], largest);
    }
#pragma unroll
    for (int n = 0; n < Block::fragments; ++n) {
      if (n % blocks != rank)
        continue;
      f32 result[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        result[e] = acc_o[n][e] * factor[e / 2][0];
#pragma unroll
      for (int d = 1; d < blocks; ++d) {
        const Vec<f32, 4> part = *results.part(d - 1, n / blocks);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          result[e] = result[e] + part[e] * factor[e / 2][d];
      }
      const int column = group * (Config::value_depth / 2) + n * 8 + lane_of_warp() % 4 * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile.row0 + line + 8 * half;
        const Vec<f32, 2> two{result[2 * half], result[2 * half + 1]};
        if constexpr (Config::splits > 1)
          store_vec(partial.acc_o + (line + 8 * half) * Config::value_depth + column, two);
        else if (row <= tile.last_row)
          body.store(tile.entry, head_of(body, tile, row), query_of(body, row), column, two);
      }
    }
  }

  // What the block's weights are relative to, and what they add up to, to all blocks of the cluster.
  DEVICE void send_rows(const LatentResults<Config> &results, int rank) {
    f32 sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = lanes_sum<4>(softmax.row_sum[0][half]);
      if (lane_of_warp() % 4 == 0)
        block.exchanged[group * Block::rows + line + 8 * half] = sum[half];
    }
    all.meet();
    if (group == 0 && lane_of_warp() % 4 == 0)
      send_rows_of_block(results, rank, sum);
    all.meet();
  }
  DEVICE void send_rows_of_block(const LatentResults<Config> &results, int rank, const f32 (&sum)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = line + 8 * half, place = rank * Block::rows + row;
      const f32 largest = softmax.score_of(softmax.row_max[0][half]),
                all = sum[half] + block.exchanged[Block::rows + row];
      results.row_max[place] = largest;
      results.row_sum[place] = all;
      if constexpr (Block::blocks > 1)
        for (int b = 0; b < Block::blocks; ++b)
          if (b != rank) {
            send_in_cluster(results.row_max + place, (u32)b, block.arrived, largest);
            send_in_cluster(results.row_sum + place, (u32)b, block.arrived, all);
          }
    }
  }
};

// Boxes of the maps: 2 tile_keys rows of 64 columns, or page_box; what is outside is zero. `rest_map`: of the
// keys' second tensor, `value_map`: where values are not in the keys; else any. `scratch`: room for a
// LatentPartial of each cluster, where several share a tile's keys.
template <class Config, class Body>
DEVICE void attention_latent(const Body &body, const TensorMap &key_map, const TensorMap &rest_map,
                             const TensorMap &value_map, i32 *scratch = nullptr) {
  using Block = LatentBlock<Config>;
  SHARED(u64, barriers, Block::barriers);
  SHARED(f32, exchanged, 2 * Block::rows);
  if (has_no_work<Config>())
    return;
  const Block block(barriers, exchanged, reinterpret_cast<typename Config::Query *>(aligned_shared(1024)));
  const LatentResults<Config> results(block);
  const int rank = Block::blocks > 1 ? (int)cluster_rank() : 0;
  if (thread_x() == 0)
    block.init(rank);
  barrier();
  pdl_wait();
  pdl_launch_dependents();
  const u32 number = block_x() / (u32)Config::cluster; // of the cluster
  const RowTile<int> tile = row_tile<int>(body, number / (u32)Config::splits, Block::rows);
  const KeyRange<int> range = key_range<Config>(body, tile, Block::rows);
  const LatentKeys keys = keys_of_part<Config>(
      range, (int)(number % (u32)Config::splits) * Block::blocks + rank, Config::splits * Block::blocks);
  if (warp_of_block() >= Block::warps) {
    fewer_registers<Block::loading_registers>();
    if (warp_of_block() == Block::warps)
      load_latent_keys<Config>(body, block, tile, keys, range.end, key_map, rest_map, value_map);
    cluster_arrive();
    cluster_wait();
    return;
  }
  more_registers<Block::multiplying_registers>();
  LatentRows<Config> rows(block);
  copy_queries<Config, typename Block::Shape, Block::threads>(block.queries, body, tile);
  cp_async_commit();
  cp_async_wait<0>();
  fence_proxy_async();
  rows.all.meet();
  rows.add_keys(body, tile, range, keys);
  cluster_arrive(); // until all blocks have read their tiles
  cluster_wait();
  rows.send_sums(results, rank);
  rows.send_rows(results, rank);
  if constexpr (Block::blocks > 1)
    mbarrier_wait(block.arrived, 0);
  rows.store(body, tile, results, rank, LatentPartial<Config, f32>(reinterpret_cast<f32 *>(scratch), number));
}
