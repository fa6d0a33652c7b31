#pragma once
// Products of many rows by their experts' matrices on sm_90a: the main loop of gemm_ring.cuh, tile after tile
// of the experts' rows. A warpgroup gathers rows of A by copies of 16 bytes; columns of B come by TMA.

#include "expert_plan.cuh"
#include "gemm_ring.cuh"
#include "tma_tiles.cuh"

/// Tiles by their numbers: those of one expert are neighbours, of them those of the same columns, or, where
/// Config::columns_first, of the same rows.
template <class Config, class Shape>
struct ExpertTiles {
  static constexpr int tile_m = Ring<Config>::tile_m;
  const i32 *begins; ///< of the experts' rows, in shared memory
  i32 experts, wide; ///< tiles along n
  i32 passed = 0;    ///< tiles of the experts in front; in the end of all
  i32 expert = 0, first = 0,
      rows = 0; ///< of the tile: its place among those of all experts, and how many it has
  i32 column = 0;

  DEVICE ExpertTiles(const Shape &shape, const i32 *begins, i32 experts)
      : begins(begins), experts(experts), wide((i32)ceil_div(shape.n(0), Config::tile_n)) {}

  /// Moves to a tile behind the one before; false if there are not so many. The same for all lanes of a warp,
  /// which the compiler has to see.
  DEVICE bool move_to(i32 tile) {
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
        return true;
      }
      passed += all;
    }
    return false;
  }
  DEVICE TileOfC place() const { return {first, rows, column, 0}; }
};

/// Which tile a block takes next: the first that no other has taken, as tiles of fewer rows take less time.
/// By the warps that fill the ring.
struct TileQueue {
  u32 *counter; ///< in global memory: tiles that blocks have taken beside their first
  u64 *told;    ///< mbarrier
  i32 *next;    ///< two, in turn
  i32 tile;
  u32 taken = 0, parity = 0;

  static DEVICE void init(u64 *told, u32 warps) { mbarrier_init(told, warps); }

  /// Takes a tile, which is known later. One thread's answer counts, that of the first.
  DEVICE void ask(bool is_first) {
    warp_barrier(); // all its lanes have read `next`
    if (is_first)
      taken = atomic_add(counter, 1u);
    else if (lane_id() == 0)
      mbarrier_arrive(told);
  }
  DEVICE void take(bool is_first) {
    if (is_first) {
      next[parity] = (i32)(taken + grid_dim_x());
      mbarrier_arrive(told);
    }
    mbarrier_wait(told, parity);
    tile = next[parity];
    parity ^= 1;
  }
  /// After the last of `all` tiles: leaves the counter as it was.
  DEVICE void finish(bool is_first, i32 all) const {
    if (is_first && tile != (i32)block_x() && taken + 1 == (u32)all)
      store(counter, 0u);
  }
};

/// The experts' rows, one expert after the other.
struct RowsOfExperts {
  const i32 *order;
  DEVICE i32 operator()(i32 i) const { return load(order + i); }
};

/// By a warpgroup: 32 rows of A for each warp, eight lanes to a row. Rows that a tile does not have are left
/// as they are in the ring: their results go nowhere.
template <class Config, class Tiles, class Shape, class A, class... Map>
DEVICE void gather_ring(Tiles tiles, TileQueue queue, const Ring<Config> &ring, const Shape &shape,
                        const A &a, const RowsOfExperts &order, const Map &...maps) {
  using Block = Ring<Config>;
  using T = typename Config::type;
  const bool isFirst = thread_x() % Block::fillers == 0;
  const int lane = (int)lane_id(), warp = (int)thread_x() % Block::fillers / 32, chunk = lane % 8;
  const T *matrix = a.matrix(0, 0);
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth), k = (i32)shape.k();
  RingPlace at;
  int number = 0;
  auto announce = [&](const TileOfC &tile) {
    mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
    if (isFirst)
      ring.place[number] = tile;
    number = number + 1 < Block::places ? number + 1 : 0;
  };
  u32 begin = 0; // of the warp's row `lane`, in vectors: of the tile that comes next
  auto move = [&] {
    const bool is_there = tiles.move_to(queue.tile);
    const i32 row = warp * 32 + lane;
    if (is_there && row < tiles.rows)
      begin = (u32)(a.row(0, order(tiles.first + row)) / 8);
    return is_there;
  };
  // Where vector `chunk` of row 4 i + lane / 8 of the warp lies, for even i and odd ones, in bytes.
  const int line = lane / 8, even = line * 128 + (chunk ^ line) * 16,
            odd = line * 128 + (chunk ^ (line + 4)) * 16;
  // By all lanes. Pointers to the eight rows would take more registers than the warps have.
  auto vector_of = [&](int i, i32 step) {
    return matrix + ((i64)shuffle_index(begin, 4 * i + line) + chunk + step * (Block::depth / 8)) * 8;
  };
  for (bool more = move(); more;) {
    queue.ask(isFirst);
    announce(tiles.place());
    const i32 column = tiles.column, expert = tiles.expert, rows = tiles.rows - warp * 32 - line;
    for (i32 step = 0; step < steps; ++step) {
      if (step == steps / 2)
        queue.take(isFirst);
      mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
      u64 *full = ring.full + at.stage;
      if (isFirst) {
        mbarrier_arrive_expect(full, Block::b_bytes);
        int sum = 0;
        (load_columns<Config>(ring.b(at.stage) + sum++ * Block::b_size, maps, full, step * Block::depth,
                              column, expert),
         ...);
      }
      warp_barrier();
      T *tile = ring.a(at.stage) + warp * 32 * 64;
      const SharedPlace to = shared_place(tile);
      if (k % Block::depth == 0 || (step + 1) * Block::depth <= k) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const T *from = vector_of(i, step);
          if (4 * i < rows)
            cp_async_16(to + (i % 2 == 0 ? even : odd) + i * 512, from);
        }
      } else { // zeros beyond the end
        const bool isInside = step * Block::depth + chunk * 8 < k;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const T *from = vector_of(i, step);
          if (4 * i < rows)
            cp_async_16(tile + (i % 2 == 0 ? even : odd) / 2 + i * 256, isInside ? from : matrix, isInside);
        }
      }
      mbarrier_arrive_after_copies(full);
      at.template advance<Block::stages>();
    }
    more = move();
  }
  queue.finish(isFirst, tiles.passed);
  announce({});
  if (isFirst)
    mbarrier_arrive(ring.full + at.stage);
  mbarrier_arrive(ring.full + at.stage);
}

/// `plan`: see expert_plan.cuh. A map for the B of each matmul, of boxes of 1 x tile_n x 64, or, where it is
/// not k_major, 1 x 64 x 64.
template <class Config, int Experts, class Shape, class A, class Epilogue, class... Map>
DEVICE void expert_sm90(const Shape &shape, const A &a, i32 *plan, const Epilogue &epilogue,
                        const Map &...maps) {
  using Block = Ring<Config>;
  static_assert(sizeof...(Map) == Block::sums, "a map for each accumulator");
  constexpr int count = Experts + 1, gathers = 40, multiplies = 232;
  static_assert(gathers + 2 * multiplies <= Block::registers, "registers that the block has");
  SHARED(u64, full, Block::stages);
  SHARED(u64, empty, Block::stages);
  SHARED(u64, told, 1);
  SHARED(i32, next, 2);
  SHARED(i32, begins, count);
  SHARED(TileOfC, place, Block::places);
  const Block ring{reinterpret_cast<typename Config::type *>(aligned_shared(1024)), full, empty, place};
  const int thread = (int)thread_x();
  if (thread == 0) {
    TileQueue::init(told, Block::fillers / 32);
    ring.init(Block::fillers + 1);
    (tma_prefetch_map(maps), ...);
  }
  pdl_wait();
  pdl_launch_dependents();
  for (int i = thread; i < count; i += Block::threads)
    begins[i] = load(plan + i);
  barrier();
  const RowsOfExperts order{plan + count + 1};
  if (uniform_warp() >= 8) {
    fewer_registers<gathers>();
    const TileQueue queue{reinterpret_cast<u32 *>(plan + count), told, next, (i32)block_x()};
    gather_ring<Config>(ExpertTiles<Config, Shape>(shape, begins, Experts), queue, ring, shape, a, order,
                        maps...);
  } else {
    more_registers<multiplies>();
    multiply_tiles<Config>(ring, shape, order, Unscaled(), epilogue);
  }
}
