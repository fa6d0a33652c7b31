#pragma once
// The ring in shared memory of gemm_ring.cuh, and what is said of each tile: for who fills it and who
// multiplies.

#include "gemm.cuh"
#include "ring_place.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

/// A tile of C, in shared memory for those who multiply it.
struct alignas(16) TileOfC {
  i32 first, rows; ///< its rows, see Rows; none: there are no more tiles
  i32 column, matmul;
};

template <class Config>
struct Ring {
  using T = typename Config::type;
  static constexpr bool bytes = sizeof(T) == 1;
  using Sum = typename mma_accumulator<bytes && !is_narrow_float<T>>::type;
  static constexpr int sums = accumulators<Config>, tile_m = 128, tile_n = Config::tile_n;
  static constexpr int depth = 128 / (int)sizeof(T); ///< along k of a step
  static constexpr int stages = Config::stages, threads = 384, fillers = 128;
  /// That three threads have, one of each warpgroup, when the block starts. A warpgroup that asks for more
  /// than the others leave waits for ever.
  static constexpr int registers = 65536 / threads / 8 * 8 * (threads / 128);
  static constexpr int a_size = tile_m * depth, b_size = tile_n * depth; ///< elements of a tile
  static constexpr int stage_size = a_size + sums * b_size;
  static constexpr u32 b_bytes = sums * b_size * (u32)sizeof(T);
  /// Behind the stages, of each step: those of the tile's rows, then of its columns, for each accumulator; or
  /// for each accumulator their products.
  static constexpr int step_scales = !Config::scaled_steps      ? 0
                                     : Config::one_column_scale ? sums * tile_m
                                                                : tile_m + sums * tile_n;
  static constexpr int scale_warps = Config::scaled_steps ? 2 : 0;
  static constexpr bool parks = sizeof(typename Config::result) == 2;
  static_assert(Config::k_major || !bytes, "products of bytes take them along k");
  static_assert(tile_n % 16 == 0 && sums * tile_n <= 256, "at most 128 sums of a thread");

  /// Of tiles on their way: those with a step in the ring, and the one that is written.
  static constexpr int places = stages + 1;

  T *tiles;          ///< of each stage one of A and `sums` of B
  u64 *full, *empty; ///< mbarriers of each stage
  TileOfC *place;    ///< `places` of them, in turn; known once the tile's first stage is full

  DEVICE T *a(int stage) const { return tiles + stage * stage_size; }
  DEVICE T *b(int stage) const { return a(stage) + a_size; }
  DEVICE f32 *scales(int stage) const {
    return reinterpret_cast<f32 *>(tiles + stages * stage_size) + stage * step_scales;
  }
  /// By one thread. A stage is full when so many have arrived and what they expect has come.
  DEVICE void init(u32 arrivals) const {
    for (int i = 0; i < stages; ++i) {
      mbarrier_init(full + i, arrivals);
      mbarrier_init(empty + i, 8);
    }
    fence_mbarrier_init();
  }
};
