#pragma once
// Of gemm_swap_ab.cuh: what a block works on, and the thread that fills its ring.

#include "clusters.cuh"
#include "gemm.cuh"
#include "ring_place.cuh"
#include "tma.cuh"

/// `Config`:
///   type                 bf16 or f16, of A and B; or of A, if it is a byte: f8 or an 8-bit integer
///   type_b               of B, where they are bytes
///   rows                 that A has at most: 8, 16, 32, 64 or 128
///   tiles                of 64 columns that a block computes at once, of each accumulator
///   boxes                of 128 bytes along k in a step
///   stages               steps in the ring, 2 to 31
///   k_split              blocks of a cluster, which share out K: of one tile only, if there are several, and
///                        K has at least as many steps
///   k_major              of B, as bytes have to be
///   exact_steps          not 0: sums of f8 are added in f32 after each step
///   scaled_steps         scales of bytes differ along k, from 128 to 128: they multiply the sums of each
///   vector               columns that the epilogue takes at once: 1, 2, 4 or 8; divides the columns
///   weights_before_wait  B is asked for before the kernels before this one have finished
///   computed_boxes       where a prologue computes A: room behind the ring for so many boxes of 64 along k,
///                        which stay there for all tiles; 0: A is in memory
///   norm_warps           that normalise rows of A in the ring: 4 or 8; 0: A is as in memory
///   norm_bytes           then for the norm's weight, of as many columns as all steps have
///   matmuls, combined
template <class Config>
struct SwapAB {
  using T = typename Config::type;
  static constexpr bool bytes = sizeof(T) == 1, integers = bytes && !is_narrow_float<T>;
  static constexpr bool scaled = Config::scaled_steps, adds = scaled || Config::exact_steps > 0;
  using Sum = typename mma_accumulator<integers>::type;            ///< of tensor cores
  using Total = typename mma_accumulator<integers && !adds>::type; ///< of all steps
  static constexpr int rows = Config::rows, groups = rows / 8, boxes = Config::boxes, stages = Config::stages;
  static constexpr int sums = accumulators<Config>, tiles = sums * Config::tiles;
  static constexpr int box_depth = 128 / (int)sizeof(T);                 ///< elements along k
  static constexpr int box = 64 * box_depth, row_box = rows * box_depth; ///< elements
  static constexpr int weights_size = boxes * tiles * box;
  static constexpr bool computes_rows = Config::computed_boxes > 0;
  static constexpr int stage_size = weights_size + (computes_rows ? 0 : boxes * row_box);
  static constexpr int computed_size = Config::computed_boxes * row_box + Config::norm_bytes / (int)sizeof(T);
  static constexpr int norm_warps = Config::norm_warps;
  static constexpr bool normalises = norm_warps > 0;
  static constexpr int columns = 64 * Config::tiles, depth = box_depth * boxes; ///< of C, and of K in a step
  static constexpr int split = cluster_blocks<Config::k_split>;
  /// A product waits for the one before that adds to the same registers: short ones take turns, as do those
  /// with scales of their own.
  static constexpr int turns = scaled || tiles * rows <= 32 ? boxes : 1, chains = tiles * turns;
  /// Behind the ring, of each step: those of a box's columns, then of its rows, box by box.
  static constexpr int box_scales = 64 * tiles + rows, step_scales = scaled ? boxes * box_scales : 0;
  static constexpr int scale_warps = scaled ? 3 : 0;
  static constexpr int row_warps = computes_rows ? 3 : 0; ///< that only compute rows: of 8 each has a warp
  static constexpr int multipliers = 128,
                       threads = multipliers + 32 * (1 + scale_warps + row_warps + norm_warps);
  static constexpr int own_groups = (groups + split - 1) / split; ///< of 8 rows, that a block stores
  static constexpr int staged_rows = rows < 16 ? 8 : 16, staged_pitch = 20;
  static constexpr int staged_groups = staged_rows / 8, staged_vectors = staged_rows * 16 / Config::vector;
  /// Of neighbouring columns, that a thread stores of a tile.
  static constexpr int vectors =
      Config::tiles * ((own_groups + staged_groups - 1) / staged_groups) * ((staged_vectors + 31) / 32);
  using Part = Vec<f32, 4>; ///< what a thread has of 64 columns and 8 rows
  static constexpr int parts_of_others = (split - 1) * own_groups * tiles * multipliers;
  static DEVICE constexpr u32 bytes_of_parts(int rank) {
    return (u32)((groups - rank + split - 1) / split * (split - 1) * tiles * multipliers * (int)sizeof(Part));
  }
  static_assert(Config::k_major || !bytes, "products of bytes take them along k");
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

/// Calls `ask(sum, map)` for the maps of the matmuls that the block computes.
template <class Config, class Ask, class... Map>
DEVICE void for_matmuls_of(const BlockPlace &place, const Ask &ask, const Map &...maps) {
  int matmul = 0;
  if constexpr (side_by_side<Config>)
    ((matmul++ == place.matmul ? ask(0, maps) : (void)0), ...);
  else
    (ask(matmul++, maps), ...);
}

/// Of an A that is not in memory.
struct NoMap {};
DEVICE void tma_prefetch_map(const NoMap &) {}

/// Asks for what a stage of the ring holds.
template <class Config>
struct SwapStages {
  using Block = SwapAB<Config>;
  typename Config::type *ring;
  u64 *full;
  u64 *full_rows; ///< where rows are normalised: those of A come by themselves

  /// The step's tiles of B, of the columns at `place`. The stage then expects those of A too, unless they
  /// come by themselves.
  template <class... Map>
  DEVICE void ask_weights(int stage, const BlockPlace &place, int step, const Map &...maps) const {
    constexpr int expected = Block::normalises ? Block::weights_size : Block::stage_size;
    mbarrier_arrive_expect(full + stage, expected * (u32)sizeof(typename Config::type));
    typename Config::type *to = ring + stage * Block::stage_size;
#pragma unroll
    for (int b = 0; b < Block::boxes; ++b) {
      const i32 k = step * Block::depth + Block::box_depth * b;
      auto ask = [&](int sum, const TensorMap &map) {
#pragma unroll
        for (int t = 0; t < Config::tiles; ++t) {
          const i32 column = (i32)place.column + 64 * t;
          tma_load_tile_once(to + (b * Block::tiles + sum * Config::tiles + t) * Block::box, map,
                             full + stage, Config::k_major ? k : column, Config::k_major ? column : k);
        }
      };
      for_matmuls_of<Config>(place, ask, maps...);
    }
  }
  DEVICE void ask_rows(int, int, const NoMap &) const {}
  /// The step's tile of A.
  DEVICE void ask_rows(int stage, int step, const TensorMap &map) const {
    typename Config::type *to = ring + stage * Block::stage_size + Block::weights_size;
    u64 *const come = Block::normalises ? full_rows + stage : full + stage;
    if (Block::normalises)
      mbarrier_arrive_expect(come, Block::boxes * Block::row_box * (u32)sizeof(typename Config::type));
#pragma unroll
    for (int b = 0; b < Block::boxes; ++b)
      tma_load_tile(to + b * Block::row_box, map, come, step * Block::depth + Block::box_depth * b, 0);
  }
};

/// Fills the ring. By one thread. `Stages`: SwapStages, or what asks in its place.
template <class Config, class Stages, class Shape>
struct SwapProducer {
  using Block = typename Stages::Block;
  const Shape &shape;
  const Stages stages;
  u64 *empty;
  SwapWork work;
  BlockPlace place;
  int step = 0, asked = 0;

  DEVICE SwapProducer(const Shape &shape, const Stages &stages, u64 *empty, const SwapWork &work)
      : shape(shape), stages(stages), empty(empty), work(work) {
    place_columns<Config, Block::columns>(place, shape, work.tile);
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
  template <class... Map>
  DEVICE void begin(const Map &...maps) {
#pragma unroll 1
    for (; asked < Block::stages && work.tile < work.tiles; ++asked) {
      stages.ask_weights(asked, place, work.first + step, maps...);
      advance();
    }
  }
  /// A for what has been asked for, if it is in memory, then the other steps.
  template <class MapOfA, class... Map>
  DEVICE void go_on(const MapOfA &map_a, const Map &...maps) {
    int of_rows = 0;
#pragma unroll 1
    for (int stage = 0; stage < asked; ++stage) {
      stages.ask_rows(stage, work.first + of_rows, map_a);
      of_rows = of_rows + 1 < work.steps ? of_rows + 1 : 0;
    }
    RingPlace next{0, asked > 0 ? 1u : 0u}; // if any are left, the ring is full or has not been begun
#pragma unroll 1
    for (; work.tile < work.tiles; advance()) {
      mbarrier_wait(empty + next.stage, next.parity ^ 1);
      stages.ask_weights(next.stage, place, work.first + step, maps...);
      stages.ask_rows(next.stage, work.first + step, map_a);
      next.template advance<Block::stages>();
    }
  }
};

/// By the warp that fills the ring: its mbarriers, of which a stage is full when `arrivals` have come, and
/// those of `init_others`; then as much of B as may be asked for.
template <class Config, class Producer, class InitOthers, class MapOfA, class... Map>
DEVICE void begin_ring(u64 *full, u64 *empty, u32 arrivals, const InitOthers &init_others, Producer &producer,
                       const MapOfA &map_a, const Map &...maps) {
  const int lane = (int)lane_id();
  if (lane < Producer::Block::stages) {
    mbarrier_init(full + lane, arrivals);
    mbarrier_init(empty + lane, 4);
  }
  if (lane == 31)
    init_others();
  fence_mbarrier_init();
  warp_barrier();
  if (lane == 0) {
    (tma_prefetch_map(maps), ...);
    tma_prefetch_map(map_a);
    if (Config::weights_before_wait)
      producer.begin(maps...);
  }
  warp_barrier();
}
/// Until all threads of the cluster have come, for mbarriers.
template <class Block>
DEVICE void meet() {
  if constexpr (Block::split > 1) {
    cluster_arrive_relaxed();
    cluster_wait();
  } else {
    barrier();
  }
}

/// Waits until who multiplies has given a stage back, if it ever had it. (No lambda: NVRTC before 13.5 takes
/// none with a parameter of any type in a template.)
struct AwaitStage {
  u64 *empty; ///< null: it is free
  u32 parity;
  DEVICE void operator()() const {
    if (empty)
      mbarrier_wait(empty, parity);
  }
};

/// Calls `fill(place, step, stage, await)` for the steps of a block whose stages are `which` modulo
/// Block::scale_warps; the stage is free after await(). By one of these warps, which bring what TMA does not.
/// A stage is always the same warp's: parities tell rounds of the ring apart only for who has waited for the
/// one before, and several warpgroups give their stages back in any order.
template <class Config, class Block, class Shape, class Fill>
DEVICE void for_own_steps(const Shape &shape, SwapWork work, u64 *empty, int which, const Fill &fill) {
  RingPlace place_in_ring;
  bool again = false; // the ring has been filled once
  for (; work.tile < work.tiles; work.tile += work.stride) {
    BlockPlace place;
    place_columns<Config, Block::columns>(place, shape, work.tile);
#pragma unroll 1
    for (int step = 0; step < work.steps; ++step) {
      const int stage = place_in_ring.stage;
      const u32 parity = place_in_ring.parity;
      const bool first_time = !again;
      again = again || stage + 1 == Block::stages;
      place_in_ring.template advance<Block::stages>();
      if (stage % Block::scale_warps == which)
        fill(place, work.first + step, stage, AwaitStage{first_time ? nullptr : empty + stage, parity ^ 1u});
    }
  }
}
