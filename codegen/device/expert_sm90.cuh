#pragma once
// Products of many rows by their experts' matrices on sm_90a. Blocks stay and take one tile after the other: 128
// rows of an expert and some of its columns. A warpgroup fills a ring in shared memory: rows of A are gathered by
// copies of 16 bytes, columns of B come by TMA; two warpgroups multiply 64 rows each.

#include "expert_plan.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

/// `Config`:
///   type             bf16 or f16, of A and B
///   tile_n           columns of C, of each matmul; times the accumulators at most 256
///   stages           steps of 64 along k in the ring
///   matmuls, combined
template <class Config>
struct ExpertSm90 {
  using T = typename Config::type;
  static constexpr int sums = accumulators<Config>, tile_m = 128, tile_n = Config::tile_n, depth = 64;
  static constexpr int stages = Config::stages, threads = 384;
  static constexpr int a_size = tile_m * depth, b_size = tile_n * depth; ///< elements of a tile
  static constexpr int stage_size = a_size + sums * b_size;
  static constexpr int producers = 128;
  /// Steps whose copies of A are on their way while the next is asked for.
  static constexpr int lag = stages > 2 ? 2 : 1;
};

/// The tiles of a block, in order: those of one expert are neighbours, first its rows.
struct ExpertTiles {
  const i32 *begins; ///< of the experts' rows, in shared memory
  int experts;
  i64 columns; ///< tiles along n
  i64 passed = 0;
  int expert = 0;
  i32 first = 0, rows = 0; ///< of the tile: its place in the plan, and how many it has
  i64 column = 0;          ///< tile along n

  /// False behind the last.
  template <int TileM>
  DEVICE bool go_to(i64 tile) {
    for (; expert < experts; ++expert) {
      const i32 count = begins[expert + 1] - begins[expert];
      const i64 high = (count + TileM - 1) / TileM, all = high * columns;
      if (tile < passed + all) {
        const i64 at = tile - passed;
        column = at / high;
        first = (i32)(at - column * high) * TileM;
        rows = count - first < TileM ? count - first : TileM;
        first += begins[expert];
        return true;
      }
      passed += all;
    }
    return false;
  }
};

/// The mbarriers of a ring: a stage is full, or empty.
struct RingPlace {
  int stage = 0;
  u32 parity = 0;
  template <int Stages>
  DEVICE void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <class Config, class Shape, class A, class... Map>
DEVICE void fill_expert_ring(const Shape &shape, const A &a, const i32 *order, ExpertTiles tiles,
                             typename Config::type *ring, u64 *full, u64 *empty, const Map &...maps) {
  using Block = ExpertSm90<Config>;
  using T = typename Config::type;
  constexpr int per_thread = Block::tile_m / 16;
  const int thread = (int)thread_x() % Block::producers, chunk = thread % 8, row = thread / 8;
  const T *matrix = a.matrix(0, 0);
  const i64 steps = ceil_div(shape.k(), Block::depth);
  RingPlace at, arrived;
  i64 asked = 0;
  auto arrive = [&] {
    fence_proxy_async();
    mbarrier_arrive(full + arrived.stage);
    arrived.template advance<Block::stages>();
  };
  for (i64 tile = block_x(); tiles.template go_to<Block::tile_m>(tile); tile += grid_dim_x()) {
    const T *rows[per_thread];
    bool valid[per_thread];
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      valid[i] = row + 16 * i < tiles.rows;
      rows[i] = matrix + (a.row(0, order[tiles.first + (valid[i] ? row + 16 * i : 0)]) + chunk * 8);
    }
    for (i64 step = 0; step < steps; ++step) {
      mbarrier_wait(empty + at.stage, at.parity ^ 1);
      T *tile_a = ring + at.stage * Block::stage_size, *tile_b = tile_a + Block::a_size;
      if (thread == 0) {
        mbarrier_arrive_expect(full + at.stage, Block::sums * Block::b_size * (u32)sizeof(T));
        int sum = 0;
        (tma_load_tile(tile_b + sum++ * Block::b_size, maps, full + at.stage, (i32)(step * Block::depth),
                       (i32)(tiles.column * Block::tile_n), (i32)tiles.expert),
         ...);
      }
      const bool inside = step * Block::depth + chunk * 8 < shape.k();
#pragma unroll
      for (int i = 0; i < per_thread; ++i) {
        const int r = row + 16 * i;
        const bool reads = inside && valid[i];
        cp_async_16(tile_a + r * 64 + (chunk ^ r % 8) * 8, reads ? rows[i] + step * Block::depth : matrix, reads);
      }
      cp_async_commit();
      at.template advance<Block::stages>();
      if (++asked > Block::lag) {
        cp_async_wait<Block::lag>();
        arrive();
      }
    }
  }
  cp_async_wait<0>();
  for (i64 left = asked < Block::lag ? asked : Block::lag; left > 0; --left)
    arrive();
}

template <class Config, class Shape, class Epilogue>
DEVICE void multiply_expert_tiles(const Shape &shape, const i32 *order, ExpertTiles tiles,
                                  const typename Config::type *ring, u64 *full, u64 *empty,
                                  const Epilogue &epilogue) {
  using Block = ExpertSm90<Config>;
  using T = typename Config::type;
  constexpr int fragments = Block::tile_n / 8;
  const int lane = (int)lane_id(), group = (int)thread_x() / 128, warp = (int)thread_x() / 32 % 4;
  const i64 steps = ceil_div(shape.k(), Block::depth);
  RingPlace at;
  for (i64 tile = block_x(); tiles.template go_to<Block::tile_m>(tile); tile += grid_dim_x()) {
    const bool works = group * 64 < tiles.rows;
    f32 acc[Block::sums * fragments][4];
    int before = 0;
    for (i64 step = 0; step < steps; ++step) {
      mbarrier_wait(full + at.stage, at.parity);
      if (works) {
        const T *tile_a = ring + at.stage * Block::stage_size, *tile_b = tile_a + Block::a_size;
        warpgroup_arrive();
#pragma unroll
        for (int k = 0; k < Block::depth; k += 16)
          wgmma_rows<T>(acc, wgmma_descriptor(tile_a + group * 4096 + k, 1024), wgmma_descriptor(tile_b + k, 1024),
                        step > 0 || k > 0);
        warpgroup_commit();
        warpgroup_wait<1>();
      }
      // The products of the step before have ended.
      if (step > 0 && lane == 0)
        mbarrier_arrive(empty + before);
      before = at.stage;
      at.template advance<Block::stages>();
    }
    if (works) {
      warpgroup_wait<0>();
      fence_operand(acc);
    }
    if (lane == 0)
      mbarrier_arrive(empty + before);
    if (!works)
      continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = group * 64 + warp * 16 + lane / 4 + 8 * h;
      if (row >= tiles.rows)
        continue;
      const i64 line = order[tiles.first + row];
#pragma unroll
      for (int j = 0; j < fragments; ++j) {
        const i64 column = tiles.column * Block::tile_n + j * 8 + lane % 4 * 2;
        if (column >= shape.n(0))
          continue;
        Vec<f32, 2> totals[Block::sums];
#pragma unroll
        for (int s = 0; s < Block::sums; ++s)
#pragma unroll
          for (int v = 0; v < 2; ++v)
            totals[s][v] = acc[s * fragments + j][2 * h + v];
        epilogue(Matmul<0>(), line, column, totals, StoreAt<2>{line * shape.n(0) + column});
      }
    }
  }
}

/// `plan`: see expert_plan.cuh. A map for the B of each matmul, of boxes of 1 x tile_n x 64.
template <class Config, int Experts, class Shape, class A, class Epilogue, class... Map>
DEVICE void expert_sm90(const Shape &shape, const A &a, const i32 *plan, const Epilogue &epilogue,
                        const Map &...maps) {
  using Block = ExpertSm90<Config>;
  using T = typename Config::type;
  static_assert(sizeof...(Map) == Block::sums, "a map for each accumulator");
  constexpr int count = Experts + 1;
  SHARED(u64, full, Block::stages);
  SHARED(u64, empty, Block::stages);
  SHARED(i32, begins, count);
  T *ring = reinterpret_cast<T *>(aligned_shared(1024));
  const int thread = (int)thread_x();
  if (thread == 0) {
    for (int i = 0; i < Block::stages; ++i) {
      mbarrier_init(full + i, Block::producers + 1);
      mbarrier_init(empty + i, 8);
    }
    fence_mbarrier_init();
    (tma_prefetch_map(maps), ...);
  }
  pdl_wait();
  pdl_launch_dependents();
  for (int i = thread; i < count; i += Block::threads)
    begins[i] = load(plan + i);
  barrier();
  const ExpertTiles tiles{begins, count - 1, ceil_div(shape.n(0), Block::tile_n)};
  if (thread >= 256) {
    fewer_registers<56>();
    fill_expert_ring<Config>(shape, a, plan + count, tiles, ring, full, empty, maps...);
  } else {
    more_registers<224>();
    multiply_expert_tiles<Config>(shape, plan + count, tiles, ring, full, empty, epilogue);
  }
}
