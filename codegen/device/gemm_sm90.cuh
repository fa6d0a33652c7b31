#pragma once
// Matrix multiplication of many rows on sm_90a, by warpgroups from a ring in shared memory, which one thread
// fills by TMA: see gemm_ring.cuh.

#include "gemm_ring.cuh"

/// `Config`, beside what gemm_ring.cuh takes:
///   a_batched, b_batched   A, or B, is another one for each z; else the same
///   batched
template <class Config, class Shape>
struct GemmTiles {
  using Block = Ring<Config>;
  /// So many tiles along m pass along n together: what they read stays in the L2.
  static constexpr i32 band = 16;
  const Shape &shape;
  const i32 high, wide;                       ///< tiles along m, and along n, of all matmuls
  const i32 all;                              ///< tiles of all batches
  i32 tile;                                   ///< the next one
  i32 row = 0, column = 0, z = 0, matmul = 0; ///< the tile's first
  i32 rows = 0;

  DEVICE GemmTiles(const Shape &shape, i64 batches)
      : shape(shape), high((i32)ceil_div(shape.m(), Block::tile_m)), wide(tiles_along_n(shape)),
        all(high * wide * (i32)batches), tile((i32)block_x()) {}

  DEVICE bool next() {
    if (tile >= all)
      return false;
    i32 at = tile;
    if constexpr (Config::batched) {
      z = tile / (high * wide);
      at -= z * high * wide;
    }
    const i32 bands = at / (band * wide), in_band = at - bands * band * wide, left = high - bands * band,
              lines = left < band ? left : band, across = in_band / lines;
    row = (bands * band + in_band - across * lines) * Block::tile_m;
    place_column(across);
    const i64 behind = shape.m() - row;
    rows = behind < Block::tile_m ? (i32)behind : Block::tile_m;
    tile += (i32)grid_dim_x();
    return true;
  }
  DEVICE TileOfC place() const { return {z * (i32)shape.m() + row, rows, column, matmul}; }

private:
  static DEVICE i32 tiles_along_n(const Shape &shape) {
    i64 tiles = 0;
#pragma unroll
    for (int i = 0; i < (side_by_side<Config> ? Config::matmuls : 1); ++i)
      tiles += ceil_div(shape.n(i), Block::tile_n);
    return (i32)tiles;
  }
  DEVICE void place_column(i32 across) {
    matmul = 0;
    if constexpr (side_by_side<Config>) {
      i32 end = 0, first = 0;
#pragma unroll
      for (int i = 0; i + 1 < Config::matmuls; ++i) {
        end += (i32)ceil_div(shape.n(i), Block::tile_n);
        if (across >= end) {
          matmul = i + 1;
          first = end;
        }
      }
      across -= first;
    }
    column = across * Block::tile_n;
  }
};

/// At a step that is full: who asks for tiles, and the warp that has brought its scales.
template <class Config>
constexpr int ring_arrivals = Config::scaled_steps ? 2 : 1;

/// By one thread.
template <class Config, class Tiles, class Shape, class... Map>
DEVICE void fill_ring(Tiles tiles, const Ring<Config> &ring, const Shape &shape, const TensorMap &map_a,
                      const Map &...maps) {
  using Block = Ring<Config>;
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth);
  RingPlace at;
  int number = 0;
  auto announce = [&](const TileOfC &tile) {
    mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
    ring.place[number] = tile;
    number = number + 1 < Block::places ? number + 1 : 0;
  };
  while (tiles.next()) {
    announce(tiles.place());
    const i32 z_a = Config::a_batched ? tiles.z : 0, z_b = Config::b_batched ? tiles.z : 0;
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
      u64 *full = ring.full + at.stage;
      const i32 k = step * Block::depth;
      mbarrier_arrive_expect(full, Block::b_bytes + Block::a_size * (u32)sizeof(typename Config::type));
      tma_load_tile(ring.a(at.stage), map_a, full, k, tiles.row, z_a);
      int number = 0;
      auto load = [&](const TensorMap &map) {
        const int mine = number++;
        if (!side_by_side<Config> || mine == tiles.matmul)
          load_columns<Config>(ring.b(at.stage) + (side_by_side<Config> ? 0 : mine * Block::b_size), map,
                               full, k, tiles.column, z_b);
      };
      (load(maps), ...);
      at.template advance<Block::stages>();
    }
  }
  announce({});
  for (int i = 0; i < ring_arrivals<Config>; ++i)
    mbarrier_arrive(ring.full + at.stage);
}

struct RowsInOrder {
  DEVICE i32 operator()(i32 i) const { return i; }
};

/// A map for A, of boxes of 1 x 128 x depth, and one for the B of each matmul: of 1 x tile_n x depth, or,
/// where it is not k_major, 1 x 64 x 64.
template <class Config, class Shape, class Scales, class Epilogue, class... Map>
DEVICE void gemm_sm90(const Shape &shape, i64 batches, const Scales &scales, const Epilogue &epilogue,
                      const TensorMap &map_a, const Map &...maps) {
  using Block = Ring<Config>;
  static_assert(sizeof...(Map) == Config::matmuls, "a map for each matmul");
  constexpr int fills = Config::scaled_steps ? 40 : 24, multiplies = Config::scaled_steps ? 232 : 240;
  static_assert(fills + 2 * multiplies <= Block::registers, "registers that the block has");
  SHARED(u64, full, Block::stages);
  SHARED(u64, empty, Block::stages);
  SHARED(TileOfC, place, Block::places);
  const Block ring{reinterpret_cast<typename Config::type *>(aligned_shared(1024)), full, empty, place};
  if (thread_x() == 0) {
    ring.init(ring_arrivals<Config>);
    tma_prefetch_map(map_a);
    (tma_prefetch_map(maps), ...);
  }
  pdl_wait();
  pdl_launch_dependents();
  barrier();
  if (uniform_warp() >= 8) {
    fewer_registers<fills>();
    if (thread_x() == 256)
      fill_ring<Config>(GemmTiles<Config, Shape>(shape, batches), ring, shape, map_a, maps...);
    if constexpr (Config::scaled_steps)
      if (uniform_warp() > 8)
        fill_step_scales<Config>(GemmTiles<Config, Shape>(shape, batches), ring, shape, scales,
                                 uniform_warp() - 9);
  } else {
    more_registers<multiplies>();
    multiply_tiles<Config>(ring, shape, RowsInOrder(), scales, epilogue);
  }
}
