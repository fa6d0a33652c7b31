#pragma once
// The main loop of matrix products on sm_90a. A block stays and takes one tile of C after the other: 128 rows
// and some columns. One warpgroup fills a ring in shared memory with tiles of A and B, 64 elements along k at
// a time; two others multiply 64 rows each. A finished tile is rounded and parked in registers: its epilogue
// is done piece by piece while the products of the next tile run.
//
// `Config`:
//   type             bf16 or f16, of A and B
//   result           the type to which products are rounded before the epilogue takes them: 16 bits; or f32,
//   where the
//                    epilogue takes the sums, and follows the products at once
//   tile_n           columns of C of a tile, for each accumulator: a multiple of 16; of all accumulators at
//   most 256 stages           steps of 64 along k in the ring vector           neighbours that the epilogue
//   takes: up to 8, of f32 up to 2 k_major          neighbours in memory of B are neighbours along k; else
//   along n, and tile_n is a multiple of 64 matmuls, combined
//
// Who fills the ring says of each tile where it lies; who multiplies asks
//
// Rows:
//   operator()(i)    which row of C row i of a tile's `first` and on is

#include "parked_tile.cuh"

/// Starts the products of a stage: 64 rows from `row` on.
template <class Config, int Fragments>
DEVICE void start_products(f32 (&acc)[Fragments][4], const Ring<Config> &ring, int stage, int row, bool add) {
  using T = typename Config::type;
  const T *tile_a = ring.a(stage) + row * 64, *tile_b = ring.b(stage);
  warpgroup_arrive();
#pragma unroll
  for (int k = 0; k < 64; k += 16) {
    const u64 a = wgmma_descriptor(tile_a + k, 1024);
    if constexpr (Config::k_major)
      wgmma_rows<T>(acc, a, wgmma_descriptor(tile_b + k, 1024), add || k > 0);
    else
      wgmma_rows_by_depth<T>(acc, a, wgmma_descriptor(tile_b + k * 64, 64 * 128), add || k > 0);
  }
  warpgroup_commit();
}

/// What the two warpgroups do that multiply.
template <class Config, class Shape, class Rows, class Epilogue>
DEVICE void multiply_tiles(const Ring<Config> &ring, const Shape &shape, const Rows &rows,
                           const Epilogue &epilogue) {
  using Block = Ring<Config>;
  const int group = uniform_warp() / 4;
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth);
  RingPlace at;
  int before = 0, number = 0;
  auto release = [&] { // nothing reads the step before any more
    if (lane_id() == 0)
      mbarrier_arrive(ring.empty + before);
  };
  auto advance = [&] {
    before = at.stage;
    at.template advance<Block::stages>();
  };
  ParkedTile<Config, Epilogue> parked;
  f32 acc[Block::sums * Block::tile_n / 8][4];
  while (true) {
    mbarrier_wait(ring.full + at.stage, at.parity);
    const TileOfC tile = ring.place[number];
    number = number + 1 < Block::places ? number + 1 : 0;
    const i32 count = shuffle_index(tile.rows, 0); // the compiler sees that it is one for all lanes
    if (count == 0)
      break;
    if (group * 64 >= count) { // none for this warpgroup
      for (i32 step = 0; step < steps; ++step) {
        mbarrier_wait(ring.full + at.stage, at.parity);
        warp_barrier();
        advance();
        release();
      }
      continue;
    }
    warp_barrier(); // products are the whole warp's
#pragma unroll 1
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.full + at.stage, at.parity);
      start_products<Config>(acc, ring, at.stage, group * 64, step > 0);
      // Not before the products, which would wait for what is asked for.
      if constexpr (Block::parks)
        if (parked.left > 0)
          parked.read_ahead(shape, epilogue);
      warpgroup_wait<1>();
      if (step > 0)
        release();
      advance();
      if constexpr (Block::parks)
        if (parked.left > 0)
          parked.finish_piece(shape, epilogue);
    }
    const TilePlace place = place_of(tile, rows, group);
    warpgroup_wait<0>();
    fence_operand(acc);
    if constexpr (Block::parks)
      while (parked.left > 0) // k is short
        parked.finish_next(shape, epilogue);
    release();
    if constexpr (Block::parks)
      parked.take(acc, place);
    else
      finish_sums<Config>(shape, epilogue, acc, place);
  }
  if constexpr (Block::parks)
    if (parked.left > 0)
      parked.finish_all(shape, epilogue);
}
