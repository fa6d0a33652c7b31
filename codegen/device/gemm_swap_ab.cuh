#pragma once
// Up to 128 rows of A at the speed at which memory gives B, on sm_90a. The operands change sides (swap AB):
// 64 columns of C are the rows of a warpgroup's product, and the rows of A its columns, of which there may be
// as few as 8. One thread keeps tiles of B on their way by TMA, in a ring that takes all of the shared memory
// of a multiprocessor, or half of it; a warpgroup multiplies them. The blocks of a cluster may share out K:
// they add up what they have in an order that only the sizes decide.

#include "early_launch.cuh"
#include "swap_ab_norm.cuh"
#include "swap_ab_parts.cuh"
#include "swap_ab_scales.cuh"
#include "swap_ab_vectors.cuh"
#include "wgmma.cuh"

/// In wgmma_bytes.cuh, which kernels of bytes include.
template <class A, class B, class Sum, int Fragments>
DEVICE void wgmma_byte_rows(Sum (&d)[Fragments][4], u64 a, u64 b, bool add);

template <class Sum, int Tiles, int Groups>
DEVICE void clear(Sum (&sums)[Tiles][Groups][4]) {
#pragma unroll
  for (int t = 0; t < Tiles; ++t)
#pragma unroll
    for (int j = 0; j < Groups; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[t][j][e] = 0;
}

/// The sums of a block's steps. Fragment j of acc[s * Config::tiles + t]: columns 64 t + 16 w + l / 4 (+ 8)
/// of accumulator s, rows 8 j + 2 (l % 4) (+ 1), for lane l of warp w.
template <class Config>
struct SwapSums {
  using Block = SwapAB<Config>;
  using T = typename Config::type;
  using Total = typename Block::Total;
  using Neighbours = Vec<Total, Config::vector>;
  typename Block::Sum acc[Block::chains][Block::groups][4];
  u64 *ready = nullptr; ///< where rows are normalised in the ring: that those of a stage are
  /// Where sums of steps are added in f32.
  f32 added[Block::adds ? Block::tiles : 1][Block::adds ? Block::groups : 1][4];
  DEVICE auto &totals() {
    if constexpr (Block::adds)
      return added;
    else
      return acc;
  }

  /// `computed`: the rows of A for these steps, where they are not in the ring. `scales`: of the steps in the
  /// ring, where Config::scaled_steps.
  DEVICE void multiply(const T *ring, const T *computed, const f32 *scales, u64 *full, u64 *empty,
                       RingPlace &at, int steps) {
    if constexpr (Block::adds)
      multiply_and_add(ring, scales, full, empty, at, steps);
    else
      multiply_all(ring, computed, full, empty, at, steps);
  }

  DEVICE void multiply_all(const T *ring, const T *computed, u64 *full, u64 *empty, RingPlace &at,
                           int steps) {
    const bool leads = lane_id() == 0;
    int before = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const T *const rows =
          Block::computes_rows ? computed + step * Block::boxes * Block::row_box : in_stage(ring, at);
      start_step(ring, rows, full, at, step > 0);
      warpgroup_wait<1>();
      if (step > 0 && leads)
        mbarrier_arrive(empty + before);
      before = at.stage;
      at.template advance<Block::stages>();
    }
    warpgroup_wait<0>();
#pragma unroll
    for (int i = 0; i < Block::chains; ++i)
      fence_operand(acc[i]);
    if (leads)
      mbarrier_arrive(empty + before);
#pragma unroll
    for (int i = Block::tiles; i < Block::chains; ++i)
#pragma unroll
      for (int j = 0; j < Block::groups; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          acc[i % Block::tiles][j][e] += acc[i][j][e];
  }

  /// The rows of A that TMA has brought.
  static DEVICE const T *in_stage(const T *ring, const RingPlace &at) {
    return ring + at.stage * Block::stage_size + Block::weights_size;
  }
  /// Starts the products of a stage with `rows` of A.
  DEVICE void start_step(const T *ring, const T *rows, u64 *full, const RingPlace &at, bool add) {
    mbarrier_wait(full + at.stage, at.parity);
    if constexpr (Block::normalises)
      mbarrier_wait(ready + at.stage, at.parity);
    // Once a step: products of few rows are as short as what finds their operands.
    const u64 weights = wgmma_descriptor(ring + at.stage * Block::stage_size, 1024);
    const u64 first_row = wgmma_descriptor(rows, 1024);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < Block::box_depth; k += 32 / (int)sizeof(T))
#pragma unroll
      for (int b = 0; b < Block::boxes; ++b)
#pragma unroll
        for (int t = 0; t < Block::tiles; ++t)
          multiply_box(acc[b % Block::turns * Block::tiles + t],
                       further(weights, (b * Block::tiles + t) * Block::box),
                       further(first_row, b * Block::row_box), k, add || k > 0 || b >= Block::turns);
    warpgroup_commit();
  }

  DEVICE void multiply_and_add(const T *ring, const f32 *scales, u64 *full, u64 *empty, RingPlace &at,
                               int steps) {
    clear(added);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      start_step(ring, in_stage(ring, at), full, at, false);
      SwapStepScales<Config> by;
      by.load(scales + at.stage * Block::step_scales);
      warp_barrier();
      warpgroup_wait<0>();
#pragma unroll
      for (int i = 0; i < Block::chains; ++i)
        fence_operand(acc[i]);
      if (lane_id() == 0)
        mbarrier_arrive(empty + at.stage);
      at.template advance<Block::stages>();
#pragma unroll
      for (int i = 0; i < Block::chains; ++i)
        by.add(added[i % Block::tiles], acc[i], i);
    }
  }

  /// Each group of 8 rows is added up by one block of the cluster: the others send theirs to it.
  DEVICE void add_parts(typename Block::Part *parts, u64 *arrived, int rank) {
    constexpr int split = Block::split;
    auto place = [&](int from, int j, int t) {
      return parts + ((from * Block::own_groups + j / split) * Block::tiles + t) * Block::multipliers +
             thread_x();
    };
#pragma unroll
    for (int j = 0; j < Block::groups; ++j)
      if (j % split != rank)
#pragma unroll
        for (int t = 0; t < Block::tiles; ++t) {
          f32 bits[4];
          copy_bytes(bits, totals()[t][j], 16);
          send_in_cluster(place((rank + split - j % split) % split - 1, j, t), j % split, arrived, bits);
        }
    if (rank < Block::groups)
      mbarrier_wait(arrived, 0);
#pragma unroll
    for (int j = 0; j < Block::groups; ++j)
      if (j % split == rank)
#pragma unroll
        for (int t = 0; t < Block::tiles; ++t)
#pragma unroll
          for (int from = 0; from < split - 1; ++from) {
            const typename Block::Part bits = *place(from, j, t);
            Total part[4];
            copy_bytes(part, &bits, 16);
#pragma unroll
            for (int e = 0; e < 4; ++e)
              totals()[t][j][e] += part[e];
          }
  }

  /// Each warp turns its 16 columns over in shared memory, to get neighbours, which `take` gets: the number
  /// of the vector as of for_vectors(), row, column of the tile, and the sums.
  template <class Take>
  DEVICE void hand_out(int rank, Total *staged, const Take &take) {
    constexpr int vector = Config::vector, pitch = Block::staged_pitch, plane = Block::staged_rows * pitch;
    constexpr int groups = Block::staged_groups;
    const int lane = (int)lane_id();
#pragma unroll
    for (int t = 0; t < Config::tiles; ++t)
#pragma unroll
      for (int part = 0; part < Block::own_groups; part += groups) {
        warp_barrier();
#pragma unroll
        for (int s = 0; s < Block::sums; ++s)
#pragma unroll
          for (int j = 0; j < Block::groups; ++j)
            if (j / Block::split >= part && j / Block::split < part + groups && j % Block::split == rank)
#pragma unroll
              for (int e = 0; e < 4; ++e)
                staged[s * plane + ((j / Block::split - part) * 8 + lane % 4 * 2 + e % 2) * pitch + lane / 4 +
                       e / 2 * 8] = totals()[s * Config::tiles + t][j][e];
        warp_barrier();
        for_vectors<Config>(t, part, rank, [&](int number, int r, int c, int row, int column) {
          Neighbours neighbours[Block::sums];
#pragma unroll
          for (int s = 0; s < Block::sums; ++s)
            neighbours[s] = load_vec<Total, vector>(staged + s * plane + r * pitch + c);
          take(number, row, column, neighbours);
        });
      }
  }

  /// `operands`: what was read ahead, a SwapOperands.
  template <class Shape, class Scales, class Epilogue, class Operands>
  DEVICE void store(const Shape &shape, const BlockPlace &place, int rank, Total *staged,
                    const Scales &scales, const Epilogue &epilogue, Operands &operands) {
    const i64 m = shape.m(), n = shape.n(place.matmul);
    hand_out(rank, staged, [&](int number, i64 row, int column, const Neighbours(&sums)[Block::sums]) {
      if (row < m && place.column + column < n)
        operands.finish(number, shape, scales, epilogue, place, row, place.column + column, sums);
    });
  }
  /// The tile as rows in shared memory, rounded, which the block's heads are then made of.
  template <class Shape, class Epilogue>
  DEVICE void store_heads(const Shape &shape, const BlockPlace &place, int rank, Total *staged,
                          typename Epilogue::type *tile, const Epilogue &epilogue) {
    const i64 m = shape.m(), n = shape.n(place.matmul);
    hand_out(rank, staged, [&](int, int row, int column, const Neighbours(&sums)[Block::sums]) {
      if (row < m && place.column + column < n)
        round_into_tile<Config>(epilogue.rounding, place, row, place.column + column, sums,
                                tile + row * tile_pitch<Config> + column);
    });
  }

private:
  static DEVICE u64 further(u64 descriptor, int elements) {
    return wgmma_advance(descriptor, (u32)elements * (u32)sizeof(T));
  }
  static DEVICE void multiply_box(typename Block::Sum (&d)[Block::groups][4], u64 weights, u64 rows, int k,
                                  bool add) {
    if constexpr (Block::bytes)
      wgmma_byte_rows<typename Config::type_b, T>(d, further(weights, k), further(rows, k), add);
    else if constexpr (Config::k_major)
      wgmma_rows<T>(d, further(weights, k), further(rows, k), add);
    else
      wgmma_transposed<T>(d, further(weights, 64 * k), further(rows, k), add);
  }
};

/// The kernel, whose A is in memory or computed by each block: see swap_ab_parts.cuh.
template <class Config, class Shape, class Prologue, class Scales, class Epilogue, class MapOfA, class... Map>
DEVICE void swap_ab(const Shape &shape, const Prologue &prologue, const Scales &scales,
                    const Epilogue &epilogue, const MapOfA &map_a, const Map &...maps) {
  using Block = SwapAB<Config>;
  using T = typename Config::type;
  static_assert(sizeof...(Map) == Config::matmuls, "a map for each matmul");
  static_assert(has_prologue<Prologue> == (Block::computes_rows || Block::normalises),
                "a prologue computes A");
  constexpr int staged_size = Block::sums * Block::staged_rows * Block::staged_pitch;
  SHARED(u64, full, Block::stages);
  SHARED(u64, empty, Block::stages);
  static_assert(!Block::bytes || (!Block::computes_rows && !makes_heads<Epilogue>),
                "bytes lie in memory, and their sums are no heads");
  SHARED(u64, arrived, 3);
  SHARED(u64, ready, Block::normalises ? Block::stages : 1);
  SHARED(u64, full_rows, Block::normalises ? Block::stages : 1);
  SHARED(typename Block::Total, staged, 4 * staged_size);
  T *ring = reinterpret_cast<T *>(aligned_shared(1024));
  T *computed = ring + Block::stages * Block::stage_size;
  launch_before_wait<Config>();
  const int warp = shuffle_index((i32)thread_x() / 32, 0), lane = (int)lane_id();
  const int rank = Block::split > 1 ? (int)cluster_rank() : 0;
  if (Block::split < Config::k_split && block_x() % (u32)Config::k_split != 0) {
    if (warp < 4)
      skip_epilogue(epilogue, shape.m());
    return;
  }
  const SwapWork work = swap_work<Config>(shape, rank);
  using Stages = SwapStages<Config>;
  SwapProducer<Config, Stages, Shape> producer(shape, Stages{ring, full, full_rows}, empty, work);
  auto init_others = [&] {
    mbarrier_init(arrived, 1);
    mbarrier_init(arrived + 1, 4);
    mbarrier_init(arrived + 2, larger(1, Block::norm_warps));
  };
  auto normaliser = norm_warp<Config>(prologue, computed, warp - 5);
  if constexpr (Block::normalises)
    if (warp > 4) {
      normaliser.ask_weights(work, shape.k());
      if (warp == 5)
        init_stages<Block>(ready, full_rows);
    }
  if (warp == 4)
    begin_ring<Config>(full, empty, Block::scaled ? 2 : 1, init_others, producer, map_a, maps...);
  meet<Block>();
  if constexpr (Block::computes_rows) {
    if (!Config::weights_before_wait) {
      pdl_wait();
      if (warp == 4 && lane == 0)
        producer.begin(maps...);
      warp_barrier();
    }
    compute_rows<Config>(prologue, computed, work);
    if (warp > 4)
      return;
  } else {
    pdl_wait();
    if constexpr (Block::normalises)
      if (warp > 4) {
        normaliser.find_scales(shape.m(), arrived + 2);
        normalise_rows(normaliser, ring, full_rows, ready, work);
        return;
      }
  }
  launch_after_wait<Config>();
  if (warp == 4) {
    if (lane == 0)
      producer.go_on(map_a, maps...);
    return;
  }
  // Behind the ring, with the parts: more than the 48 KiB that a kernel may declare.
  f32 *step_scales = reinterpret_cast<f32 *>(computed + Block::computed_size);
  auto *parts = reinterpret_cast<typename Block::Part *>(step_scales + Block::stages * Block::step_scales);
  if constexpr (Block::scaled)
    if (warp > 4) {
      fill_swap_scales<Config>(shape, scales, step_scales, full, empty, work, warp - 5);
      return;
    }
  auto last_scales = scales_after_steps<Config>(scales);
  Epilogue begun = epilogue;
  begin_epilogue(begun);
  RingPlace at;
  u32 phase = 0; // of the barrier of those that multiply
  for (i64 tile = work.tile; tile < work.tiles; tile += work.stride) {
    BlockPlace place;
    place_columns<Config, Block::columns>(place, shape, tile);
    SwapSums<Config> sums;
    sums.ready = ready;
    SwapOperands<Config, decltype(last_scales), Epilogue> operands;
    operands.read(shape, last_scales, begun, place, rank);
    warp_barrier(); // products are the whole warp's
    sums.multiply(ring, computed, step_scales, full, empty, at, work.steps);
    if constexpr (Block::split > 1) {
      if (thread_x() == 0 && rank < Block::groups)
        mbarrier_arrive_expect(arrived, Block::bytes_of_parts(rank));
      sums.add_parts(parts, arrived, rank);
    }
    auto *own = staged + warp * staged_size;
    if constexpr (makes_heads<Epilogue>) {
      auto *rows = reinterpret_cast<typename Epilogue::type *>(parts + Block::parts_of_others);
      sums.store_heads(shape, place, rank, own, rows, begun);
      meet_warps(arrived + 1, phase);
      begun.heads(place, static_cast<const typename Epilogue::type *>(rows), rank);
      if (tile + work.stride < work.tiles)
        meet_warps(arrived + 1, phase);
    } else {
      sums.store(shape, place, rank, own, last_scales, begun, operands);
      if constexpr (sums_squares<Epilogue>) {
        meet_warps(arrived + 1, phase);
        begun.finish_tiles(place, rank, shape.m(), shape.n(place.matmul));
        if (tile + work.stride < work.tiles)
          meet_warps(arrived + 1, phase);
      }
    }
  }
  end_epilogue(begun, shape.m());
}

/// Maps: of A, of boxes of `rows` x 128 bytes; of the B of each matmul, of 64 x 64, or, of bytes, 64 x 128.
/// What is outside is zero.
template <class Config, class Shape, class Scales, class Epilogue, class... Map>
DEVICE void gemm_swap_ab(const Shape &shape, const Scales &scales, const Epilogue &epilogue,
                         const TensorMap &map_a, const Map &...maps) {
  swap_ab<Config>(shape, NoPrologue(), scales, epilogue, map_a, maps...);
}
/// The same of the norm of A's rows: see swap_ab_norm.cuh.
template <class Config, class Shape, class Norm, class Epilogue, class... Map>
DEVICE void gemm_swap_ab_normed(const Shape &shape, const Norm &norm, const Epilogue &epilogue,
                                const TensorMap &map_a, const Map &...maps) {
  swap_ab<Config>(shape, norm, Unscaled(), epilogue, map_a, maps...);
}
/// The same where each block computes A: maps of the B of each matmul.
template <class Config, class Shape, class Prologue, class Epilogue, class... Map>
DEVICE void gemm_swap_ab_computed(const Shape &shape, const Prologue &prologue, const Epilogue &epilogue,
                                  const Map &...maps) {
  swap_ab<Config>(shape, prologue, Unscaled(), epilogue, NoMap(), maps...);
}
