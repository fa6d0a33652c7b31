#pragma once
// Matrix multiplication of many rows on sm_90a, by warpgroups from a ring in shared memory, which one thread
// fills by TMA: see gemm_ring.cuh.

#include "gemm_ring.cuh"
#include "tma_tiles.cuh"

/// At a step that is full: who asks for tiles, and the warps that bring its scales.
template <class Config>
constexpr int ring_arrivals = 1 + Ring<Config>::scale_warps;

/// By one thread.
template <class Config, class Shape, class... Map>
DEVICE void fill_ring(GemmTiles<Config, Shape> tiles, const Ring<Config> &ring, const Shape &shape,
                      const TensorMap &map_a, const Map &...maps) {
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
    announce({tiles.first(), tiles.rows, tiles.column, tiles.matmul});
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
      u64 *full = ring.full + at.stage;
      const i32 k = step * Block::depth;
      mbarrier_arrive_expect(full, Block::b_bytes + Block::a_size * (u32)sizeof(typename Config::type));
      load_step<Config>(ring.a(at.stage), ring.b(at.stage), full, tiles, k, map_a, maps...);
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
  constexpr int fills = Config::scaled_steps ? 56 : 24, multiplies = Config::scaled_steps ? 224 : 240;
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
      fill_ring(GemmTiles<Config, Shape>(shape, batches), ring, shape, map_a, maps...);
    if constexpr (Config::scaled_steps)
      if (uniform_warp() > 8 && uniform_warp() <= 8 + Block::scale_warps)
        fill_step_scales<Config>(GemmTiles<Config, Shape>(shape, batches), ring, shape, scales,
                                 uniform_warp() - 9);
  } else {
    more_registers<multiplies>();
    multiply_tiles<Config>(ring, shape, RowsInOrder(), scales, epilogue);
  }
}
