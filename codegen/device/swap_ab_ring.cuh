#pragma once
// Of gemm_swap_ab.cuh: what a block works on, and the thread that fills its ring.

#include "clusters.cuh"
#include "gemm.cuh"
#include "ring_place.cuh"
#include "tma.cuh"

/// `Config`:
///   type                 bf16 or f16, of A and B
///   rows                 that A has at most: 8, 16, 32, 64 or 128
///   tiles                of 64 columns that a block computes at once, of each accumulator
///   boxes                of 64 along k in a step
///   stages               steps in the ring, 2 to 31
///   k_split              blocks of a cluster, which share out K: of one tile only, if there are several, and
///                        K has at least as many steps
///   k_major              of B
///   vector               columns that the epilogue takes at once: 1, 2, 4 or 8; divides the columns
///   weights_before_wait  B is asked for before the kernels before this one have finished
///   computed_boxes       where a prologue computes A: room behind the ring for so many boxes of 64 along k of
///                        it, which stay there for all tiles; 0: A is in memory
///   matmuls, combined
template <class Config>
struct SwapAB {
  using T = typename Config::type;
  static constexpr int rows = Config::rows, groups = rows / 8, boxes = Config::boxes, stages = Config::stages;
  static constexpr int sums = accumulators<Config>, tiles = sums * Config::tiles;
  static constexpr int box = 64 * 64, row_box = rows * 64; ///< elements
  static constexpr int weights_size = boxes * tiles * box;
  static constexpr bool computes_rows = Config::computed_boxes > 0;
  static constexpr int stage_size = weights_size + (computes_rows ? 0 : boxes * row_box);
  static constexpr int computed_size = Config::computed_boxes * row_box;
  static constexpr int columns = 64 * Config::tiles, depth = 64 * boxes; ///< of C, and of K in a step
  static constexpr int split = cluster_blocks<Config::k_split>;
  /// A product waits for the one before that adds to the same registers: short ones take turns.
  static constexpr int turns = tiles * rows <= 32 ? boxes : 1, chains = tiles * turns;
  static constexpr int multipliers = 128, threads = multipliers + 32;
  static constexpr int own_groups = (groups + split - 1) / split; ///< of 8 rows, that a block stores
  static constexpr int staged_rows = rows < 16 ? 8 : 16, staged_pitch = 20;
  using Part = Vec<f32, 4>; ///< what a thread has of 64 columns and 8 rows
  static constexpr int parts_of_others = (split - 1) * own_groups * tiles * multipliers;
  static DEVICE constexpr u32 bytes_of_parts(int rank) {
    return (u32)((groups - rank + split - 1) / split * (split - 1) * tiles * multipliers * (int)sizeof(Part));
  }
  static_assert(stages >= 2 && stages <= 31, "lanes of a warp initialise the ring");
};

/// Of all tiles every `stride`-th one, from `tile` on; of each the steps `first` ... `first + steps` along K.
struct SwapWork {
  i64 tile, tiles, stride;
  int first, steps;
};

template <class Config, int Depth = SwapAB<Config>::depth, class Shape>
DEVICE SwapWork swap_work(const Shape &shape, int rank) {
  using Block = SwapAB<Config>;
  SwapWork work;
  work.tiles = 0;
#pragma unroll
  for (int i = 0; i < (side_by_side<Config> ? Config::matmuls : 1); ++i)
    work.tiles += ceil_div(shape.n(i), Block::columns);
  work.tile = block_x() / (u32)Config::k_split;
  work.stride = grid_dim_x() / (u32)Config::k_split;
  const int steps = (int)ceil_div(shape.k(), Depth);
  work.first = steps * rank / Block::split;
  work.steps = steps * (rank + 1) / Block::split - work.first;
  return work;
}

/// Asks for the step's tiles of B, of the columns at `place`.
template <class Config, class... Map>
DEVICE void ask_for_columns(typename Config::type *to, u64 *full, const BlockPlace &place, int step,
                            const Map &...maps) {
  using Block = SwapAB<Config>;
#pragma unroll
  for (int b = 0; b < Block::boxes; ++b) {
    const i32 k = step * Block::depth + 64 * b;
    auto ask = [&](int sum, const TensorMap &map) {
#pragma unroll
      for (int t = 0; t < Config::tiles; ++t) {
        const i32 column = (i32)place.column + 64 * t;
        tma_load_tile_once(to + (b * Block::tiles + sum * Config::tiles + t) * Block::box, map, full,
                           Config::k_major ? k : column, Config::k_major ? column : k);
      }
    };
    int matmul = 0;
    if constexpr (side_by_side<Config>)
      ((matmul++ == place.matmul ? ask(0, maps) : (void)0), ...);
    else
      (ask(matmul++, maps), ...);
  }
}

/// Asks for the step's tile of A.
template <class Config>
DEVICE void ask_for_rows(typename Config::type *to, u64 *full, int step, const TensorMap &map) {
  using Block = SwapAB<Config>;
#pragma unroll
  for (int b = 0; b < Block::boxes; ++b)
    tma_load_tile(to + Block::weights_size + b * Block::row_box, map, full, step * Block::depth + 64 * b, 0);
}

/// Fills the ring. By one thread.
template <class Config, class Shape, class... Map>
struct SwapProducer {
  using Block = SwapAB<Config>;
  const Shape &shape;
  typename Config::type *ring;
  u64 *full, *empty;
  SwapWork work;
  BlockPlace place;
  int step = 0, asked = 0;

  DEVICE SwapProducer(const Shape &shape, typename Config::type *ring, u64 *full, u64 *empty,
                      const SwapWork &work)
      : shape(shape), ring(ring), full(full), empty(empty), work(work) {
    place_columns<Config, Block::columns>(place, shape, work.tile);
  }
  DEVICE typename Config::type *at(int stage) const { return ring + stage * Block::stage_size; }
  DEVICE void ask(int stage, const Map &...maps) {
    mbarrier_arrive_expect(full + stage, Block::stage_size * (u32)sizeof(typename Config::type));
    ask_for_columns<Config>(at(stage), full + stage, place, work.first + step, maps...);
  }
  DEVICE void advance() {
    if (++step < work.steps)
      return;
    step = 0;
    work.tile += work.stride;
    place = BlockPlace();
    place_columns<Config, Block::columns>(place, shape, work.tile);
  }
  /// As much of B as there is room for.
  DEVICE void begin(const Map &...maps) {
#pragma unroll 1
    for (; asked < Block::stages && work.tile < work.tiles; ++asked) {
      ask(asked, maps...);
      advance();
    }
  }
  /// A for what has been asked for, if it is in memory, then the other steps.
  template <class MapOfA>
  DEVICE void go_on(const MapOfA &map_a, const Map &...maps) {
    if constexpr (!Block::computes_rows) {
      int of_rows = 0;
#pragma unroll 1
      for (int stage = 0; stage < asked; ++stage) {
        ask_for_rows<Config>(at(stage), full + stage, work.first + of_rows, map_a);
        of_rows = of_rows + 1 < work.steps ? of_rows + 1 : 0;
      }
    }
    RingPlace next{0, asked > 0 ? 1u : 0u}; // if any are left, the ring is full or has not been begun
#pragma unroll 1
    for (; work.tile < work.tiles; advance()) {
      mbarrier_wait(empty + next.stage, next.parity ^ 1);
      ask(next.stage, maps...);
      if constexpr (!Block::computes_rows)
        ask_for_rows<Config>(at(next.stage), full + next.stage, work.first + step, map_a);
      next.template advance<Block::stages>();
    }
  }
};
