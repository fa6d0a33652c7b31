#pragma once
// Products of many rows by their experts' matrices on sm_90a. The operands change sides (swap AB): columns of
// C are the rows of a warpgroup's product, and an expert's rows its columns. A tile then has any multiple of 8
// rows up to Config::tile_rows, so that each expert's lie in as few tiles as can be, of as many rows each. In
// tiles of 128 rows those left over would read the expert's matrix once more for few products.
//
// A block stays and takes one tile of C after the other. One warpgroup fills its ring (expert_ring.cuh); two
// others multiply half of the tile's columns each. Their results go through shared memory, which turns them
// over into rows of C.
//
// `Config`:
//   type, result, vector, k_major, matmuls, combined   see gemm_ring.cuh
//   tile_rows      of a tile, at most: a multiple of 8 up to 160
//   stages         steps in the ring

#include "expert_ring.cuh"
#include "fragment_epilogue.cuh"
#include "meet.cuh"
#include "wgmma.cuh"

/// What a warpgroup that multiplies has of a tile: of each of its two boxes 64 columns of C, and of each
/// eight rows of C a fragment.
template <class Config>
struct ExpertSums {
  using Ring = ExpertRing<Config>;
  using T = typename Config::type;
  using Result = typename Config::result;
  static constexpr int most = Ring::fragments;
  const Ring &ring;
  const int group, warp; ///< of the block's, and of the group's
  RingPlace at;
  f32 acc[Ring::boxes][most][4];

  DEVICE ExpertSums(const Ring &ring, int warp_of_block)
      : ring(ring), group(warp_of_block / 4), warp(warp_of_block % 4) {}

  /// The products of a tile of so many rows. `prepare()` is called while they run.
  template <class Prepare>
  DEVICE void multiply(i32 rows, i32 steps, const Prepare &prepare) {
    multiply_at_most<16>(rows, steps, prepare);
  }

  /// Gives the steps of a tile back that has no columns for the warpgroup.
  DEVICE void skip(i32 steps) {
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.full + at.stage, at.parity);
      warp_barrier();
      release(at.stage);
      at.template advance<Ring::stages>();
    }
  }

  /// Rounds the tile and does its epilogue, some rows at a time.
  template <class Pending>
  DEVICE void store(Pending &pending, Meeting &meeting) const {
#pragma unroll
    for (int part = 0; part < Pending::parts; ++part)
      if (part * Ring::rows_at_once < pending.rows) {
        stage_rows(part * (Ring::rows_at_once / 8));
        pending.load_late(part);
        meeting.meet();
        pending.finish(*this, part);
        meeting.meet();
      }
  }

  /// Eight columns of a box of a row that waits, in an order that spreads them over the banks.
  DEVICE Result *staged(int b, int line, int chunk) const {
    return ring.staged(group) + (b * Ring::rows_at_once + line) * 64 + (chunk ^ line % 8) * 8;
  }

private:
  DEVICE void release(int stage) const {
    if (lane_id() == 0)
      mbarrier_arrive(ring.empty + stage);
  }

  /// Products of N rows are code of their own: in steps of 16 up to 128, then of 8, for it is large shares that
  /// take time.
  template <int N, class Prepare>
  DEVICE void multiply_at_most(i32 rows, i32 steps, const Prepare &prepare) {
    constexpr int next = N + (N < 128 ? 16 : 8);
    if constexpr (next > 8 * most)
      multiply_all<most>(steps, prepare);
    else if (rows <= N)
      multiply_all<N / 8>(steps, prepare);
    else
      multiply_at_most<next>(rows, steps, prepare);
  }
  template <int Fragments, class Prepare>
  DEVICE void multiply_all(i32 steps, const Prepare &prepare) {
    int before = 0;
#pragma unroll 1
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.full + at.stage, at.parity);
      start_step<Fragments>(step > 0);
      if (step == steps / 2)
        prepare();
      warpgroup_wait<1>();
      if (step > 0)
        release(before);
      before = at.stage;
      at.template advance<Ring::stages>();
    }
    warpgroup_wait<0>();
#pragma unroll
    for (int b = 0; b < Ring::boxes; ++b)
      fence_operand(first_of<Fragments>(b));
    release(before);
  }
  template <int Fragments>
  DEVICE void start_step(bool add) {
    const T *rows = ring.rows(at.stage);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < Ring::depth; k += 16)
#pragma unroll
      for (int b = 0; b < Ring::boxes; ++b) {
        const T *weights = ring.weights(at.stage, group, b);
        if constexpr (Config::k_major)
          wgmma_rows<T>(first_of<Fragments>(b), wgmma_descriptor(weights + k, 1024),
                        wgmma_descriptor(rows + k, 1024), add || k > 0);
        else
          wgmma_transposed<T>(first_of<Fragments>(b), wgmma_descriptor(weights + 64 * k, 1024),
                              wgmma_descriptor(rows + k, 1024), add || k > 0);
      }
    warpgroup_commit();
  }
  template <int Fragments>
  DEVICE auto first_of(int b) -> f32 (&)[Fragments][4] {
    return reinterpret_cast<f32(&)[Fragments][4]>(acc[b]);
  }

  /// Rounds the fragments from `first` on: a warp has sixteen columns of each box.
  DEVICE void stage_rows(int first) const {
    constexpr int fragments = Ring::rows_at_once / 8;
    const int lane = (int)lane_id();
#pragma unroll
    for (int b = 0; b < Ring::boxes; ++b)
#pragma unroll
      for (int j = 0; j < fragments; j += 2) {
        if (first + j >= most)
          continue;
        constexpr int last = most - 1;
        const f32(&four)[4] = acc[b][first + j], (&next)[4] = acc[b][first + j < last ? first + j + 1 : last];
        if constexpr (sizeof(Result) == 2) {
          // The second fragment of a tile that has no more is the first again.
          const int line = 8 * (first + j < last ? j + lane / 16 : j) + lane % 8;
          const u32 pairs[4] = {packed_pair<Result>(four[0], four[1]), packed_pair<Result>(four[2], four[3]),
                                packed_pair<Result>(next[0], next[1]), packed_pair<Result>(next[2], next[3])};
          stmatrix_x4_trans(staged(b, line, 2 * warp + lane / 8 % 2), pairs);
        } else {
#pragma unroll
          for (int e = 0; e < 8; ++e)
            if (e < 4 || first + j < last)
              staged(b, 8 * (j + e / 4) + lane % 4 * 2 + e % 2, 2 * warp + e / 2 % 2)[lane / 4] =
                  (Result)(e < 4 ? four[e % 4] : next[e % 4]);
        }
      }
  }
};

/// The epilogue of a tile that is multiplied, of a thread: eight columns of some rows. What it reads is asked
/// for while the tile is multiplied, if there are registers, else when its rows are turned over.
template <class Config, class Shape, class Epilogue>
struct PendingTile {
  using Ring = ExpertRing<Config>;
  using Operands = ColumnOperands<Config, 0, Epilogue>;
  static constexpr int parts = (Ring::tile_rows + Ring::rows_at_once - 1) / Ring::rows_at_once;
  /// Threads of a row, and rows of one turn.
  static constexpr int per_row = Ring::group_columns / 8, step = 128 / per_row;
  static constexpr int count = Ring::rows_at_once / step;
  static constexpr bool holds_all = parts * count * sizeof(Operands) <= 96;
  const Shape &shape;
  const Epilogue &epilogue;
  const i32 rows, column; ///< the tile's, and the thread's first
  i32 row[(Ring::tile_rows + 31) / 32]; ///< of C: of the tile's row 32 i + lane; negative: none
  Operands operands[holds_all ? parts : 1][count];

  DEVICE PendingTile(const Shape &shape, const Epilogue &epilogue, i32 rows, i32 column)
      : shape(shape), epilogue(epilogue), rows(rows), column(column + chunk() * 8) {}
  DEVICE void find_rows(const RowsOfExperts &order, i32 first) {
    const i32 lane = (i32)lane_id();
#pragma unroll
    for (int i = 0; i < (Ring::tile_rows + 31) / 32; ++i)
      row[i] = 32 * i + lane < rows ? order(first + 32 * i + lane) : -1;
  }
  DEVICE void load_early() {
#pragma unroll
    for (int part = 0; part < (holds_all ? parts : 0); ++part)
      load(part);
  }
  DEVICE void load_late(int part) {
    if (!holds_all)
      load(part);
  }
  template <class Sums>
  DEVICE void finish(const Sums &sums, int part) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      Vec<typename Config::result, 8> products[Ring::sums];
#pragma unroll
      for (int s = 0; s < Ring::sums; ++s)
        products[s] = load_vec<typename Config::result, 8>(
            sums.staged(s * Ring::boxes_of_sum + chunk() / 8, line() + step * i, chunk() % 8));
      operands[holds_all ? part : 0][i].finish(epilogue, place(part, i), products);
    }
  }

private:
  static DEVICE int chunk() { return (int)thread_x() % 128 % per_row; }
  static DEVICE int line() { return (int)thread_x() % 128 / per_row; }
  DEVICE EightColumns place(int part, int i) const {
    const int first = part * Ring::rows_at_once + step * i;
    const i64 columns = shape.n(0);
    return {shuffle_index(row[first / 32], first % 32 + line()), column, columns, columns};
  }
  DEVICE void load(int part) {
#pragma unroll
    for (int i = 0; i < count; ++i)
      operands[holds_all ? part : 0][i].load(epilogue, place(part, i));
  }
};

/// What the two warpgroups do that multiply.
template <class Config, class Shape, class Epilogue>
DEVICE void multiply_experts(const ExpertRing<Config> &ring, u64 *met, const Shape &shape,
                             const RowsOfExperts &order, const Epilogue &epilogue) {
  using Ring = ExpertRing<Config>;
  const i32 steps = (i32)ceil_div(shape.k(), Ring::depth);
  ExpertSums<Config> sums(ring, uniform_warp());
  Meeting meeting{met + sums.group, sums.group};
  for (int number = 0;; number = number + 1 < Ring::places ? number + 1 : 0) {
    mbarrier_wait(ring.full + sums.at.stage, sums.at.parity);
    const ExpertTile tile = ring.place[number];
    // The compiler sees that they are one for all lanes.
    const i32 rows = shuffle_index(tile.rows, 0),
              column = shuffle_index(tile.column, 0) + sums.group * Ring::group_columns;
    if (rows == 0)
      break;
    if (column >= shape.n(0)) {
      sums.skip(steps);
      continue;
    }
    warp_barrier(); // products are the whole warp's
    PendingTile<Config, Shape, Epilogue> pending(shape, epilogue, rows, column);
    pending.find_rows(order, tile.first);
    sums.multiply(rows, steps, [&] { pending.load_early(); });
    sums.store(pending, meeting);
  }
}

/// `plan`: see expert_plan.cuh. A map for the B of each matmul, of boxes of 1 x 64 x 64.
template <class Config, int Experts, class Shape, class A, class Epilogue, class... Map>
DEVICE void expert_sm90(const Shape &shape, const A &a, i32 *plan, const Epilogue &epilogue,
                        const Map &...maps) {
  using Ring = ExpertRing<Config>;
  static_assert(sizeof...(Map) == Ring::sums, "a map for each accumulator");
  constexpr int count = Experts + 1, gathers = 56, multiplies = 224;
  static_assert(gathers + 2 * multiplies <= Ring::registers, "registers that the block has");
  SHARED(u64, full, Ring::stages);
  SHARED(u64, empty, Ring::stages);
  SHARED(u64, told, 1);
  SHARED(u64, met, 2);
  SHARED(i32, next, 2);
  SHARED(i32, begins, count);
  SHARED(ExpertTile, place, Ring::places);
  const Ring ring{reinterpret_cast<typename Config::type *>(aligned_shared(1024)), full, empty, place};
  const int thread = (int)thread_x();
  if (thread == 0) {
    TileQueue::init(told, Ring::fillers / 32);
    mbarrier_init(met, 4);
    mbarrier_init(met + 1, 4);
    ring.init();
    (tma_prefetch_map(maps), ...);
  }
  pdl_wait();
  pdl_launch_dependents();
  for (int i = thread; i < count; i += Ring::threads)
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
    multiply_experts<Config>(ring, met, shape, order, epilogue);
  }
}
