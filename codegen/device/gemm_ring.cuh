#pragma once
// The main loop of matrix products on sm_90a. A block stays and takes one tile of C after the other: 128 rows
// and some columns. One warpgroup fills a ring in shared memory with tiles of A and B, 64 elements along k at
// a time; two others multiply 64 rows each. A finished tile is rounded and parked in registers: its epilogue
// is done piece by piece while the products of the next tile run.
//
// `Config`:
//   type             bf16 or f16, of A and B; or of A, if it is a byte: f8 or an 8-bit integer
//   type_b           of B, where they are bytes
//   result           the type to which products are rounded before the epilogue takes them: 16 bits; or f32,
//                    or i32, where the epilogue takes the sums, and follows the products at once
//   tile_n           columns of C of a tile, for each accumulator: a multiple of 16; of all accumulators at
//                    most 256
//   stages           steps in the ring, of 64 elements along k, or 128 bytes
//   vector           neighbours that the epilogue takes: up to 8, of f32 and i32 up to 2
//   k_major          neighbours in memory of B are neighbours along k, as those of bytes have to be; else
//                    along n, and tile_n is a multiple of 64
//   exact_steps      0; of f8 the steps whose products tensor cores add up, before they are added in f32
//   matmuls, combined
//
// Who fills the ring says of each tile where it lies; who multiplies asks
//
// Rows:
//   operator()(i)    which row of C row i of a tile's `first` and on is

#include "parked_tile.cuh"

/// In wgmma_bytes.cuh, which kernels of bytes include.
template <class A, class B, class Sum, int Fragments>
DEVICE void wgmma_byte_rows(Sum (&d)[Fragments][4], u64 a, u64 b, bool add);

/// Starts the products of a stage: 64 rows from `row` on.
template <class Config, class Sum, int Fragments>
DEVICE void start_products(Sum (&acc)[Fragments][4], const Ring<Config> &ring, int stage, int row, bool add) {
  using T = typename Config::type;
  constexpr int depth = Ring<Config>::depth, each = 32 / (int)sizeof(T);
  const T *tile_a = ring.a(stage) + row * depth, *tile_b = ring.b(stage);
  warpgroup_arrive();
#pragma unroll
  for (int k = 0; k < depth; k += each) {
    const u64 a = wgmma_descriptor(tile_a + k, 1024);
    if constexpr (Ring<Config>::bytes)
      wgmma_byte_rows<T, typename Config::type_b>(acc, a, wgmma_descriptor(tile_b + k, 1024), add || k > 0);
    else if constexpr (Config::k_major)
      wgmma_rows<T>(acc, a, wgmma_descriptor(tile_b + k, 1024), add || k > 0);
    else
      wgmma_rows_by_depth<T>(acc, a, wgmma_descriptor(tile_b + k * 64, 64 * 128), add || k > 0);
  }
  warpgroup_commit();
}

/// A tile's products are sums: parks them, or does what follows.
template <class Config, class Sums, class Shape, class Scales, class Epilogue>
DEVICE void leave_tile(ParkedTile<Config, Epilogue> &parked, const Shape &shape, const Scales &scales,
                       const Epilogue &epilogue, const Sums &sums, const TilePlace &place) {
  if constexpr (Ring<Config>::parks)
    parked.take(sums, place, shape, scales);
  else
    finish_sums<Config>(shape, scales, epilogue, sums, place);
}

/// What the two warpgroups do that multiply.
template <class Config, class Shape, class Rows, class Scales, class Epilogue>
DEVICE void multiply_tiles(const Ring<Config> &ring, const Shape &shape, const Rows &rows, const Scales &scales,
                           const Epilogue &epilogue) {
  using Block = Ring<Config>;
  using Parked = ParkedTile<Config, Epilogue>;
  constexpr int fragments = Block::sums * Block::tile_n / 8;
  constexpr bool adds = Config::exact_steps > 0;
  const int group = uniform_warp() / 4;
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth);
  const int at_once = (Parked::pieces + steps - 1) / steps; // pieces in a step: several where k is short
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
  Parked parked;
  typename Block::Sum acc[fragments][4], exact[adds ? fragments : 1][4];
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
    for (i32 begin = 0, end = steps; begin < steps; begin = end) {
      if constexpr (adds)
        end = begin + Config::exact_steps < steps ? begin + Config::exact_steps : steps;
#pragma unroll 1
      for (i32 step = begin; step < end; ++step) {
        mbarrier_wait(ring.full + at.stage, at.parity);
        start_products<Config>(acc, ring, at.stage, group * 64, step > begin);
        // Not before the products, which would wait for what is asked for.
        if constexpr (Block::parks)
          if (parked.left > 0)
            parked.read_ahead(shape, epilogue);
        warpgroup_wait<1>();
        if (step > begin)
          release();
        advance();
        if constexpr (Block::parks)
#pragma unroll 1
          for (int i = 0; i < at_once && parked.left > 0; ++i) {
            if (i > 0)
              parked.read_ahead(shape, epilogue);
            parked.finish_piece(shape, epilogue);
          }
      }
      warpgroup_wait<0>();
      fence_operand(acc);
      release();
      if constexpr (adds)
#pragma unroll
        for (int i = 0; i < fragments; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            exact[i][e] = begin > 0 ? exact[i][e] + acc[i][e] : acc[i][e];
    }
    const TilePlace place = place_of(tile, rows, group);
    if constexpr (adds)
      leave_tile<Config>(parked, shape, scales, epilogue, exact, place);
    else
      leave_tile<Config>(parked, shape, scales, epilogue, acc, place);
  }
  if constexpr (Block::parks)
    parked.finish_all(shape, epilogue);
}
