#pragma once
// Products of many rows by their experts' matrices on sm_90a: the main loop of gemm_ring.cuh, tile after tile
// of the experts' rows. A warpgroup gathers rows of A by copies of 16 bytes; columns of B come by TMA.

#include "expert_plan.cuh"
#include "gemm_ring.cuh"

/// The tiles of a block, in order: those of one expert are neighbours, of them those of the same columns, or,
/// where Config::columns_first, of the same rows.
template <class Config, class Shape>
struct ExpertTiles {
  static constexpr int tile_m = Ring<Config>::tile_m;
  const i32 *begins; ///< of the experts' rows, in shared memory
  i32 experts, wide; ///< tiles along n
  i32 tile, passed = 0;
  i32 expert = 0, first = 0,
      rows = 0; ///< of the tile: its place among those of all experts, and how many it has
  i32 column = 0;

  DEVICE ExpertTiles(const Shape &shape, const i32 *begins, i32 experts)
      : begins(begins), experts(experts), wide((i32)ceil_div(shape.n(0), Config::tile_n)),
        tile((i32)block_x()) {}

  /// The same for all lanes of a warp, which the compiler has to see.
  DEVICE bool next() {
    for (; expert < experts; ++expert) {
      const i32 begin = shuffle_index(begins[expert], 0),
                count = shuffle_index(begins[expert + 1], 0) - begin;
      const i32 high = (count + tile_m - 1) / tile_m, all = high * wide;
      if (tile < passed + all) {
        const i32 at = tile - passed, lines = Config::columns_first ? wide : high, turn = at / lines,
                  in_turn = at - turn * lines, down = (Config::columns_first ? turn : in_turn) * tile_m;
        column = (Config::columns_first ? in_turn : turn) * Config::tile_n;
        first = begin + down;
        rows = count - down < tile_m ? count - down : tile_m;
        tile += (i32)grid_dim_x();
        return true;
      }
      passed += all;
    }
    return false;
  }
  DEVICE TileOfC place() const { return {first, rows, column, 0}; }
};

/// The experts' rows, one expert after the other.
struct RowsOfExperts {
  const i32 *order;
  DEVICE i32 operator()(i32 i) const { return load(order + i); }
};

/// By a warpgroup: 32 rows of A for each warp, eight lanes to a row.
template <class Config, class Tiles, class Shape, class A, class... Map>
DEVICE void gather_ring(Tiles tiles, const Ring<Config> &ring, const Shape &shape, const A &a,
                        const RowsOfExperts &order, const Map &...maps) {
  using Block = Ring<Config>;
  using T = typename Config::type;
  constexpr u32 none = ~0u;
  const bool isFirst = thread_x() % Block::fillers == 0;
  const int lane = (int)lane_id(), warp = (int)thread_x() % Block::fillers / 32, chunk = lane % 8;
  const T *matrix = a.matrix(0, 0);
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth), k = (i32)shape.k();
  RingPlace at, arrived;
  int number = 0;
  auto announce = [&](const TileOfC &tile) {
    mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
    if (isFirst)
      ring.place[number] = tile;
    number = number + 1 < Block::places ? number + 1 : 0;
  };
  bool isAsked = false; // copies of the step before are on their way
  auto arrive = [&] {
    fence_proxy_async();
    mbarrier_arrive(ring.full + arrived.stage);
    arrived.template advance<Block::stages>();
  };
  while (tiles.next()) {
    announce(tiles.place());
    // Where the warp's row `lane` begins, in vectors.
    const i32 row = warp * 32 + lane;
    const u32 begin = row < tiles.rows ? (u32)(a.row(0, order(tiles.first + row)) / 8) : none;
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
      if (isFirst) {
        u64 *full = ring.full + at.stage;
        mbarrier_arrive_expect(full, Block::b_bytes);
        int sum = 0;
        (load_columns<Config>(ring.b(at.stage) + sum++ * Block::b_size, maps, full, step * Block::depth,
                              tiles.column, tiles.expert),
         ...);
      }
      warp_barrier();
      T *tile = ring.a(at.stage) + warp * 32 * 64;
      const bool isInside = step * Block::depth + chunk * 8 < k;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = 4 * i + lane / 8;
        const u32 from = shuffle_index(begin, r);
        const bool reads = isInside && from != none;
        const i64 place = reads ? (i64)from * 8 + step * Block::depth + chunk * 8 : 0;
        cp_async_16(tile + r * 64 + (chunk ^ r % 8) * 8, matrix + place, reads);
      }
      cp_async_commit();
      at.template advance<Block::stages>();
      if (isAsked) {
        cp_async_wait<1>();
        arrive();
      }
      isAsked = true;
    }
  }
  cp_async_wait<0>();
  if (isAsked)
    arrive();
  announce({});
  if (isFirst)
    mbarrier_arrive(ring.full + at.stage);
  mbarrier_arrive(ring.full + at.stage);
}

/// `plan`: see expert_plan.cuh. A map for the B of each matmul, of boxes of 1 x tile_n x 64, or, where it is
/// not k_major, 1 x 64 x 64.
template <class Config, int Experts, class Shape, class A, class Epilogue, class... Map>
DEVICE void expert_sm90(const Shape &shape, const A &a, const i32 *plan, const Epilogue &epilogue,
                        const Map &...maps) {
  using Block = Ring<Config>;
  static_assert(sizeof...(Map) == Block::sums, "a map for each accumulator");
  constexpr int count = Experts + 1;
  SHARED(u64, full, Block::stages);
  SHARED(u64, empty, Block::stages);
  SHARED(i32, begins, count);
  SHARED(TileOfC, place, Block::places);
  const Block ring{reinterpret_cast<typename Config::type *>(aligned_shared(1024)), full, empty, place};
  const int thread = (int)thread_x();
  if (thread == 0) {
    ring.init(Block::fillers + 1);
    (tma_prefetch_map(maps), ...);
  }
  pdl_wait();
  pdl_launch_dependents();
  for (int i = thread; i < count; i += Block::threads)
    begins[i] = load(plan + i);
  barrier();
  const RowsOfExperts order{plan + count};
  if (uniform_warp() >= 8) {
    fewer_registers<40>();
    gather_ring<Config>(ExpertTiles<Config, Shape>(shape, begins, Experts), ring, shape, a, order, maps...);
  } else {
    more_registers<232>();
    multiply_tiles<Config>(ring, shape, order, Unscaled(), epilogue);
  }
}
