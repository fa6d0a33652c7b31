#pragma once
// Products of many rows by their experts' matrices on sm_90a. Blocks stay and take one tile after the other:
// 128 rows of an expert and some of its columns. A warpgroup fills a ring in shared memory: rows of A are
// gathered by copies of 16 bytes, columns of B come by TMA; two warpgroups multiply 64 rows each.

#include "expert_plan.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

/// `Config`:
///   type             bf16 or f16, of A and B
///   tile_n           columns of C, of each matmul; times the accumulators at most 256
///   stages           steps of 64 along k in the ring
///   wide             there is one result, of 16 bits, with columns in eights: 16 bytes are stored at once
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

/// The warp's number in the block, which the compiler sees to be one for all of its lanes.
DEVICE int uniform_warp() { return shuffle_index((i32)thread_x() / 32, 0); }

/// The tiles of a block, in order: those of one expert are neighbours, first its rows.
struct ExpertTiles {
  const i32 *begins; ///< of the experts' rows, in shared memory
  int experts;
  i64 columns; ///< tiles along n
  i64 passed = 0;
  int expert = 0;
  i32 first = 0, rows = 0; ///< of the tile: its place in the plan, and how many it has
  i64 column = 0;          ///< tile along n

  /// False behind the last. The same for all lanes of a warp, which the compiler has to see.
  template <int TileM>
  DEVICE bool go_to(i64 tile) {
    for (; expert < experts; ++expert) {
      const i32 count = shuffle_index(begins[expert + 1] - begins[expert], 0);
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

/// Two neighbours of a result of 16 bits, kept.
struct KeepPair {
  u32 &pair;
  u64 &base; ///< the result's address
  template <class T>
  DEVICE void operator()(T *to, const Vec<T, 2> &values) const {
    static_assert(sizeof(T) == 2, "two to a word");
    copy_bytes(&pair, &values, 4);
    base = (u64)to;
  }
};
/// Word i of lane q of four becomes word q of lane i.
DEVICE void transpose_in_quad(u32 (&words)[4]) {
  const bool odd = lane_id() % 2 != 0, upper = lane_id() / 2 % 2 != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 other = shuffle_xor(odd ? words[i] : words[i + 1], 1);
    (odd ? words[i] : words[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 other = shuffle_xor(upper ? words[i] : words[i + 2], 2);
    (upper ? words[i] : words[i + 2]) = other;
  }
}

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
        cp_async_16(tile_a + r * 64 + (chunk ^ r % 8) * 8, reads ? rows[i] + step * Block::depth : matrix,
                    reads);
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
  const int lane = (int)lane_id(), group = uniform_warp() / 4, warp = uniform_warp() % 4;
  const i64 steps = ceil_div(shape.k(), Block::depth);
  RingPlace at;
  for (i64 tile = block_x(); tiles.template go_to<Block::tile_m>(tile); tile += grid_dim_x()) {
    int before = 0;
    warp_barrier(); // products are the whole warp's
    // The products of the step before have ended.
    auto release = [&](bool is_known) {
      if (is_known && lane == 0)
        mbarrier_arrive(empty + before);
    };
    if (group * 64 >= tiles.rows) { // none for this group
      for (i64 step = 0; step < steps; ++step) {
        mbarrier_wait(full + at.stage, at.parity);
        before = at.stage;
        release(true);
        at.template advance<Block::stages>();
      }
      continue;
    }
    f32 acc[Block::sums * fragments][4];
#pragma unroll 1
    for (i64 step = 0; step < steps; ++step) {
      mbarrier_wait(full + at.stage, at.parity);
      const T *tile_a = ring + at.stage * Block::stage_size, *tile_b = tile_a + Block::a_size;
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < Block::depth; k += 16)
        wgmma_rows<T>(acc, wgmma_descriptor(tile_a + group * 4096 + k, 1024),
                      wgmma_descriptor(tile_b + k, 1024), step > 0 || k > 0);
      warpgroup_commit();
      warpgroup_wait<1>();
      release(step > 0);
      before = at.stage;
      at.template advance<Block::stages>();
    }
    warpgroup_wait<0>();
    fence_operand(acc);
    release(true);
    const i64 columns = shape.n(0), column0 = tiles.column * Block::tile_n;
    Vec<f32, 2> totals[Block::sums];
    auto take_pair = [&](int j, int h) {
#pragma unroll
      for (int s = 0; s < Block::sums; ++s)
#pragma unroll
        for (int v = 0; v < 2; ++v)
          totals[s][v] = acc[s * fragments + j][2 * h + v];
    };
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = group * 64 + warp * 16 + lane / 4 + 8 * h;
      const bool has_row = row < tiles.rows;
      const i64 line = order[tiles.first + (has_row ? row : 0)];
      if constexpr (Config::wide) {
#pragma unroll
        for (int j = 0; j < fragments; j += 4) {
          u32 words[4];
          u64 base = 0;
#pragma unroll
          for (int f = 0; f < 4; ++f) {
            const i64 column = column0 + (j + f) * 8 + lane % 4 * 2;
            take_pair(j + f, h);
            epilogue(Matmul<0>(), line, column < columns ? column : lane % 4 * 2, totals,
                     KeepPair{words[f], base});
          }
          transpose_in_quad(words);
          const i64 column = column0 + (j + lane % 4) * 8;
          if (has_row && column < columns)
            store_vec<u32, 4>(reinterpret_cast<u32 *>(base + 2 * (line * columns + column)),
                              Vec<u32, 4>{{words[0], words[1], words[2], words[3]}});
        }
      } else {
#pragma unroll
        for (int j = 0; j < fragments; ++j) {
          const i64 column = column0 + j * 8 + lane % 4 * 2;
          take_pair(j, h);
          if (has_row && column < columns)
            epilogue(Matmul<0>(), line, column, totals, StoreAt<2>{line * columns + column});
        }
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
  if (uniform_warp() >= 8) {
    fewer_registers<56>();
    fill_expert_ring<Config>(shape, a, plan + count, tiles, ring, full, empty, maps...);
  } else {
    more_registers<224>();
    multiply_expert_tiles<Config>(shape, plan + count, tiles, ring, full, empty, epilogue);
  }
}
