#pragma once
// Of expert_sm90.cuh: the tiles that a block takes, one after the other, and the warpgroup that fills its
// ring in shared memory, 64 elements along k at a time. It gathers rows of A by copies of 16 bytes; columns of
// B come by TMA.
#include "expert_plan.cuh"
#include "ring_place.cuh"
#include "tma.cuh"

/// A tile of C, in shared memory for those who multiply it.
struct alignas(16) ExpertTile {
  i32 first, rows; ///< its place among the rows of all experts, and how many it has; none: there are no more
  i32 column;      ///< of C, its first
};

template <class Config>
struct ExpertRing {
  using T = typename Config::type;
  using Result = typename Config::result;
  static constexpr int sums = accumulators<Config>, tile_rows = Config::tile_rows, depth = 64;
  /// Of 64 columns: a warpgroup multiplies two boxes, of one accumulator or of two.
  static constexpr int box = 64 * depth, boxes = 2, boxes_of_sum = boxes / sums;
  static constexpr int group_columns = 64 * boxes_of_sum, tile_columns = 2 * group_columns; ///< of C
  static constexpr int stages = Config::stages, threads = 384, fillers = 128;
  static constexpr int weights_size = 2 * boxes * box, stage_size = weights_size + tile_rows * depth;
  static constexpr u32 weights_bytes = weights_size * (u32)sizeof(T);
  static constexpr int fragments = tile_rows / 8;
  /// That three threads have, one of each warpgroup, when the block starts. A warpgroup that asks for more
  /// than the others leave waits for ever.
  static constexpr int registers = 65536 / threads / 8 * 8 * (threads / 128);
  /// Rows of results that wait in shared memory at once, of a warpgroup.
  static constexpr int rows_at_once = 64 / (int)sizeof(Result), staged_size = boxes * rows_at_once * 64;
  /// Of tiles on their way: those with a step in the ring, and the one that is written.
  static constexpr int places = stages + 1;
  static_assert(sums <= 2 && tile_rows % 8 == 0 && tile_rows <= 160, "at most 160 sums of a thread");

  T *tiles;          ///< of each stage four boxes of B, two for each warpgroup, and the rows of A
  u64 *full, *empty; ///< mbarriers of each stage
  ExpertTile *place; ///< `places` of them, in turn; known once the tile's first stage is full

  DEVICE T *weights(int stage, int group, int b) const {
    return tiles + stage * stage_size + (group * boxes + b) * box;
  }
  DEVICE T *rows(int stage) const { return tiles + stage * stage_size + weights_size; }
  DEVICE Result *staged(int group) const {
    return reinterpret_cast<Result *>(tiles + stages * stage_size) + group * staged_size;
  }
  /// By one thread.
  DEVICE void init() const {
    for (int i = 0; i < stages; ++i) {
      mbarrier_init(full + i, fillers + 1);
      mbarrier_init(empty + i, 8);
    }
    fence_mbarrier_init();
  }
};

/// Tiles by their numbers: those of one expert are neighbours, of them those of the same columns, which are
/// then read of memory once. An expert's rows are shared out evenly.
template <class Config, class Shape>
struct ExpertTiles {
  static constexpr i32 most = Config::tile_rows, tile_columns = ExpertRing<Config>::tile_columns;
  const i32 *begins; ///< of the experts' rows, in shared memory
  i32 experts, wide; ///< tiles along n
  i32 passed = 0;    ///< tiles of the experts in front; in the end of all
  i32 expert = 0;
  ExpertTile tile;

  DEVICE ExpertTiles(const Shape &shape, const i32 *begins, i32 experts)
      : begins(begins), experts(experts), wide((i32)ceil_div(shape.n(0), tile_columns)) {}

  /// Moves to a tile behind the one before; false if there are not so many. The same for all lanes of a warp,
  /// which the compiler has to see.
  DEVICE bool move_to(i32 number) {
    for (; expert < experts; ++expert) {
      const i32 begin = shuffle_index(begins[expert], 0),
                count = shuffle_index(begins[expert + 1], 0) - begin;
      const i32 high = (count + most - 1) / most, all = high * wide;
      if (number < passed + all) {
        // In eights: fewer rows than that take as long.
        const i32 at = number - passed, across = at / high, share = ((count + high - 1) / high + 7) / 8 * 8,
                  down = (at - across * high) * share, left = count - down;
        tile = {begin + down, left < share ? left : share, across * tile_columns};
        return true;
      }
      passed += all;
    }
    return false;
  }
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

/// Asks for a step's columns of B, of both warpgroups. By one thread.
template <class Config, class... Map>
DEVICE void load_expert_columns(const ExpertRing<Config> &ring, int stage, i32 k, i32 column, i32 expert,
                                const Map &...maps) {
  using Ring = ExpertRing<Config>;
  int sum = 0;
  auto load = [&](const TensorMap &map) {
#pragma unroll
    for (int i = 0; i < 2 * Ring::boxes_of_sum; ++i) {
      const int group = i / Ring::boxes_of_sum, b = sum * Ring::boxes_of_sum + i % Ring::boxes_of_sum;
      const i32 first = column + 64 * i;
      tma_load_tile(ring.weights(stage, group, b), map, ring.full + stage, Config::k_major ? k : first,
                    Config::k_major ? first : k, expert);
    }
    ++sum;
  };
  (load(maps), ...);
}

/// By a warpgroup: sixteen rows of A at a time, four for each warp, eight lanes to a row. Rows that a tile
/// does not have are left as they are in the ring: their results go nowhere.
template <class Config, class Tiles, class Shape, class A, class... Map>
DEVICE void gather_ring(Tiles tiles, TileQueue queue, const ExpertRing<Config> &ring, const Shape &shape,
                        const A &a, const RowsOfExperts &order, const Map &...maps) {
  using Ring = ExpertRing<Config>;
  using T = typename Config::type;
  constexpr int turns = (Config::tile_rows + 15) / 16; // of sixteen rows
  const bool isFirst = thread_x() % Ring::fillers == 0;
  const int lane = (int)lane_id(), warp = (int)thread_x() % Ring::fillers / 32, chunk = lane % 8;
  const int line = 4 * warp + lane / 8; // the lane's of each sixteen
  const T *matrix = a.matrix(0, 0);
  const i32 steps = (i32)ceil_div(shape.k(), Ring::depth), k = (i32)shape.k();
  RingPlace at;
  int number = 0;
  auto announce = [&](const ExpertTile &tile) {
    mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
    if (isFirst)
      ring.place[number] = tile;
    number = number + 1 < Ring::places ? number + 1 : 0;
  };
  // Of the warp's rows of the tile that comes next, lane by lane: where they begin, in vectors.
  u32 next_begin = 0, next_later = 0;
  auto begin_of = [&](int j) {
    const i32 row = j / 4 * 16 + 4 * warp + j % 4;
    return row < tiles.tile.rows ? (u32)(a.row(0, order(tiles.tile.first + row)) / 8) : 0u;
  };
  auto move = [&] {
    const bool is_there = tiles.move_to(queue.tile);
    if (is_there) {
      next_begin = begin_of(lane);
      if constexpr (turns > 8)
        next_later = begin_of(32 + lane % 8);
    }
    return is_there;
  };
  const int swizzled = line * 128 + (chunk ^ line % 8) * 16; // where the lane's vector of each row goes
  for (bool more = move(); more;) {
    queue.ask(isFirst);
    announce(tiles.tile);
    const i32 column = tiles.tile.column, expert = tiles.expert, rows = tiles.tile.rows - line;
    const u32 begin = next_begin, later = next_later;
    // By all lanes. Pointers to all rows would take more registers than the warps have.
    auto vector_of = [&](int i, i32 step) {
      const u32 row = shuffle_index(i < 8 ? begin : later, (4 * i + lane / 8) % 32);
      return matrix + ((i64)row + chunk + step * (Ring::depth / 8)) * 8;
    };
    for (i32 step = 0; step < steps; ++step) {
      if (step == steps / 2) { // where the next tile's rows lie is known by its first step
        queue.take(isFirst);
        more = move();
      }
      mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
      u64 *full = ring.full + at.stage;
      if (isFirst) {
        mbarrier_arrive_expect(full, Ring::weights_bytes);
        load_expert_columns<Config>(ring, at.stage, step * Ring::depth, column, expert, maps...);
      }
      warp_barrier();
      T *tile = ring.rows(at.stage);
      if (k % Ring::depth == 0 || (step + 1) * Ring::depth <= k) {
        const SharedPlace to = shared_place(tile) + swizzled;
#pragma unroll
        for (int i = 0; i < turns; ++i) {
          const T *from = vector_of(i, step);
          if (16 * i < rows)
            cp_async_16(to + i * 2048, from);
        }
      } else { // zeros beyond the end
        const bool isInside = step * Ring::depth + chunk * 8 < k;
#pragma unroll
        for (int i = 0; i < turns; ++i) {
          const T *from = vector_of(i, step);
          if (16 * i < rows)
            cp_async_16(tile + swizzled / 2 + i * 1024, isInside ? from : matrix, isInside);
        }
      }
      mbarrier_arrive_after_copies(full);
      at.template advance<Ring::stages>();
    }
  }
  queue.finish(isFirst, tiles.passed);
  announce({});
  if (isFirst)
    mbarrier_arrive(ring.full + at.stage);
  mbarrier_arrive(ring.full + at.stage);
}
