#pragma once
// linear_attention_chunked.cuh as two kernels, for many tokens: what a chunk is before any state comes in is
// computed for all chunks at once, and the kernel that goes from chunk to chunk reads it.

#include "linear_attention_chunked.cuh"

// A chunk in memory, in the layout of shared memory: M and, where there is a beta, -A with the inverses; then
// the factors.
template <class Config>
struct PreparedChunk {
  using T = typename Config::Query;
  using Shape = ChunkShape<Config>;
  static constexpr int matrices = (is_corrected<Config> ? 4 : 2) * Shape::matrix,
                       words = matrices / 2 + Shape::factors;
  static_assert(words % 4 == 0, "16 bytes at a time");

  T *at;
  DEVICE ChunkFactors<Config> factors() const { return {reinterpret_cast<f32 *>(at + matrices)}; }
  DEVICE TokenMatrix<Config, T> read() const { return {at, at + Shape::matrix}; }
  DEVICE TokenMatrix<Config, T> solve() const { return {at + 2 * Shape::matrix, at + 3 * Shape::matrix}; }
};

// A block has a chunk of a head. Config::slabs is 4.
template <class Config, class Body>
DEVICE void linear_attention_prepare(const Body &body, i32 *prepared) {
  using T = typename Config::Query;
  using Shape = ChunkShape<Config>;
  using Chunk = PreparedChunk<Config>;
  T *const tile = reinterpret_cast<T *>(dynamic_shared());
  const Chunk chunk = {tile + 2 * Shape::key_tile};
  f32 *const scratch =
      reinterpret_cast<f32 *>(chunk.at + 2 * Chunk::words) + thread_x() / 32 % Shape::blocks * Shape::scratch;
  const i64 tokens = body.tokens();
  const u32 chunks = (u32)((tokens + Shape::chunk - 1) / Shape::chunk), heads = (u32)body.heads(),
            head = block_x() / chunks;
  const StateBlock block = {(i64)(head / heads), (i64)(head % heads), 0};
  const i64 first = (i64)(block_x() % chunks) * Shape::chunk;
  pdl_wait();
  pdl_launch_dependents();
  copy_keys<Config>(tile, body, block, first, rows_of_chunk<Config>(first, tokens));
  cp_async_commit();
  ChunkLoads<Config> loads;
  loads.load_next(body, block, first, tokens);
  loads.publish(chunk.factors());
  cp_async_wait<0>();
  barrier();
  ChunkMatrices<Config, T>{chunk.read(), chunk.solve(), scratch}.compute_all(tile, chunk.factors());
  barrier();
  const i32 *const from = reinterpret_cast<const i32 *>(chunk.at);
  i32 *const to = prepared + (i64)block_x() * Chunk::words;
  for (int i = 4 * (int)thread_x(); i < Chunk::words; i += 4 * Shape::threads)
    store_vec<i32, 4>(to + i, load_vec<i32, 4>(from + i));
}

template <class Config>
DEVICE void copy_prepared(typename Config::Query *to, const i32 *from) {
  using Chunk = PreparedChunk<Config>;
  i32 *const words = reinterpret_cast<i32 *>(to);
#pragma unroll 4
  for (int i = 4 * (int)thread_x(); i < Chunk::words; i += 4 * ChunkShape<Config>::threads)
    cp_async_16(words + i, from + i, true);
}

// As linear_attention_chunked.
template <class Config, class Body>
DEVICE void linear_attention_prepared(const Body &body, const i32 *prepared) {
  using T = typename Config::Query;
  using Shape = ChunkShape<Config>;
  using Chunk = PreparedChunk<Config>;
  constexpr int stage_size = Shape::stage + 2 * Chunk::words;
  T *const stages = reinterpret_cast<T *>(dynamic_shared());
  const int warp = (int)thread_x() / 32, slab = warp % Shape::slabs;
  const bool reads = warp >= Shape::slabs;
  f32 *const updates = reinterpret_cast<f32 *>(stages + 2 * stage_size) + slab * Shape::updates;
  const StateBlock block = state_block<Config>(body, Shape::columns);
  const int column = block.column + 16 * slab;
  const bool has_columns = column < Config::value_depth;
  const i64 tokens = body.tokens(), chunks = (tokens + Shape::chunk - 1) / Shape::chunk;
  const i32 *const its = prepared + (block.entry * body.heads() + block.head) * chunks * Chunk::words;
  auto request = [&](int stage, i64 chunk) {
    if (chunk < chunks) {
      copy_chunk<Config>(stages + stage * stage_size, body, block, chunk * Shape::chunk, tokens);
      copy_prepared<Config>(stages + stage * stage_size + Shape::stage, its + chunk * Chunk::words);
    }
    cp_async_commit();
  };
  ChunkState<Config> state;
  pdl_wait();
  pdl_launch_dependents();
  request(0, 0);
  state.load(body, block, column);
#pragma unroll 1
  for (i64 i = 0; i < chunks; ++i) {
    T *const tile = stages + i % 2 * stage_size;
    const Chunk chunk = {tile + Shape::stage};
    cp_async_wait<0>();
    barrier();
    request((int)(i + 1) % 2, i + 1);
    f32 sums[8][4] = {};
    if (has_columns && (reads || is_corrected<Config>))
      read_state<Config>(sums, state, tile + (reads ? Shape::key_tile : 0));
    if (has_columns && !reads) {
      begin_updates<Config>(sums, tile + 2 * Shape::key_tile + 16 * slab, chunk.factors());
      if constexpr (is_corrected<Config>)
        solve_updates(sums, chunk.solve());
      share_updates<Config>(updates, sums);
    }
    barrier();
    if (has_columns) {
      if (reads)
        decay_results(sums, chunk.factors());
      apply_updates<Config>(sums, state, updates, tile, reads, chunk.read(), chunk.factors());
      if (reads)
        store_results<Config, T>(sums, body, block, column, i * Shape::chunk, tokens);
    }
  }
  if (has_columns && reads)
    state.store(body, block, column);
}
