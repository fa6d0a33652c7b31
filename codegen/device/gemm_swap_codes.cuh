#pragma once
// gemm_swap_ab.cuh for quantised weights: up to 128 rows of A at the speed at which memory gives the codes of
// B. One thread keeps tiles of codes, and of A, on their way by TMA. Three warps prepare the scales and zero
// points of a step in shared memory. Warpgroups take every so manieth step: a quad of lanes reads the codes
// of a row of the product (a column of C), 16 bytes at a time; each lane decodes its own in registers, from
// where `wgmma` takes them. The sums of the warpgroups are added up in their order, then those of the blocks
// of a cluster.

#include "swap_codes_ring.cuh"

/// What a warpgroup multiplies.
template <class Config, class Weights>
struct CodeSums : SwapSums<SwapSumsConfig<Config>> {
  using Block = SwapCodes<Config, Weights>;
  using Pairs = typename Block::Pairs;
  using Entry = typename Block::Entry;
  using T = typename Config::type;
  static constexpr int vectors = 64 * Block::bits / 128; ///< of 16 bytes, of a row's 64 codes
  static constexpr int units = Block::row_boxes * Block::tiles;

  DEVICE CodeSums() { clear(this->acc); }

  /// Of this thread's two rows of each tile, where they hold for all of K.
  Entry whole[Block::entries == 0 ? Block::tiles : 1][2];

  template <class Shape>
  DEVICE void load_whole(const Shape &shape, const Weights &weights, const BlockPlace &place) {
    if constexpr (Block::entries == 0) {
#pragma unroll
      for (int t = 0; t < Block::tiles; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int sum = t / Config::tiles;
          const i64 column = column_of<Config>(place, t, row_of_thread() + 8 * h),
                    n = shape.n(place.matmul + sum);
          whole[t][h] = Block::Pairs::prepare(
              weights.decoder(place.matmul + sum, column < n ? column : n - 1, 0));
        }
    }
  }
  /// Its first row of a tile; the other is 8 further on.
  static DEVICE int row_of_thread() { return (int)(thread_x() / 32 % 4 * 16 + lane_id() / 4); }

  /// The registers of A for 64 codes along k of tile t, those of four products. `codes`: those of the thread's
  /// first row, from the ring on; `entries`: its scales.
  DEVICE void decode(u32 (&a)[4][4], const u8 *ring, u32 codes, const Entry *entries, int t, int box) const {
    constexpr int per_unit = Block::entries > 0 ? larger(1, 64 * Block::entries / Block::depth) : 1;
    const u32 q = lane_id() % 4u;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Vec<u32, 4> words[vectors];
#pragma unroll
      for (int v = 0; v < vectors; ++v)
        words[v] = load_vec<u32, 4>(reinterpret_cast<const u32 *>(
            ring + (codes ^ (u32)(box * vectors + v) << 4) + 8 * h * Block::code_bytes));
      Entry scales[per_unit];
#pragma unroll
      for (int i = 0; i < per_unit; ++i)
        if constexpr (Block::entries > 0)
          scales[i] = entries[(box * 64 * Block::entries / Block::depth + i) * 64 + 8 * h];
        else
          scales[i] = whole[t][h];
#pragma unroll
      for (int s = 0; s < 4; ++s)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int word = (2 * s + half) * Pairs::words;
          u32 eight[Pairs::words];
#pragma unroll
          for (int i = 0; i < Pairs::words; ++i)
            eight[i] = words[(word + i) / 4][(word + i) % 4];
          a[s][h + 2 * half] = Pairs::pair(eight, q, scales[s * per_unit / 4]);
        }
    }
  }

  /// Its share of the steps of a tile: from `next` on, every so manieth. `next` is then the first of the next
  /// tile.
  DEVICE void multiply_codes(const u8 *ring, u64 *full, u64 *empty, RingPlace &at, int &next, int steps) {
    const bool leads = lane_id() == 0;
    const u32 codes = codes_of_row<Block::code_bytes>(row_of_thread());
    const Entry *const entries = reinterpret_cast<const Entry *>(ring + Block::entries_at) + row_of_thread();
    const u64 rows = wgmma_descriptor(ring + Block::rows_at, 1024);
    int before = -1;
#pragma unroll 1
    for (; next < steps; next += Block::groups_of_warps) {
      mbarrier_wait(full + at.stage, at.parity);
      const u32 stage = (u32)(at.stage * Block::stage_bytes);
      const u64 stage_rows = wgmma_advance(rows, stage);
      u32 a[2][4][4];
#pragma unroll
      for (int u = 0; u < units; ++u) {
        const int box = u / Block::tiles, t = u % Block::tiles;
        warpgroup_wait<1>(); // the registers are free, and what the step before has read
        if (u == 1 && before >= 0 && leads)
          mbarrier_arrive(empty + before);
        decode(a[u % 2], ring, stage + t * Block::code_box + codes,
               entries + stage / sizeof(Entry) + t * Block::entries * 64, t, box);
        warpgroup_arrive();
#pragma unroll
        for (int s = 0; s < 4; ++s)
          wgmma_registers<T>(this->acc[t], a[u % 2][s],
                             wgmma_advance(stage_rows, box * Block::row_box_bytes + 32 * s));
        warpgroup_commit();
      }
      before = at.stage;
#pragma unroll
      for (int i = 0; i < Block::groups_of_warps; ++i)
        at.template advance<Block::stages>();
    }
    next -= steps;
    warpgroup_wait<0>();
#pragma unroll
    for (int t = 0; t < Block::tiles; ++t)
      fence_operand(this->acc[t]);
    if (before >= 0 && leads)
      mbarrier_arrive(empty + before);
  }

  /// The first warpgroup adds up what the others hand it.
  DEVICE void add_groups(typename Block::Part *parts, u64 *given, u64 *taken, int group, u32 parity) {
    const int thread = (int)thread_x() % Block::multipliers;
    auto place = [&](int from, int t, int j) {
      return parts + ((from * Block::tiles + t) * Block::groups + j) * Block::multipliers + thread;
    };
    if (group > 0) {
      mbarrier_wait(taken, parity ^ 1u);
#pragma unroll
      for (int t = 0; t < Block::tiles; ++t)
#pragma unroll
        for (int j = 0; j < Block::groups; ++j) {
          typename Block::Part part;
#pragma unroll
          for (int e = 0; e < 4; ++e)
            part[e] = this->acc[t][j][e];
          *place(group - 1, t, j) = part;
        }
      mbarrier_arrive(given);
      return;
    }
    mbarrier_wait(given, parity);
#pragma unroll
    for (int from = 0; from < Block::groups_of_warps - 1; ++from)
#pragma unroll
      for (int t = 0; t < Block::tiles; ++t)
#pragma unroll
        for (int j = 0; j < Block::groups; ++j) {
          const typename Block::Part part = *place(from, t, j);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            this->acc[t][j][e] += part[e];
        }
    mbarrier_arrive(taken);
  }
};

/// Maps: of A, of boxes of `rows` x 64; of the codes of each matmul, bytes, of 64 x SwapCodes::code_bytes.
/// What is outside is zero.
template <class Config, class Shape, class Weights, class Epilogue, class... Map>
DEVICE void gemm_swap_codes(const Shape &shape, const Weights &weights, const Epilogue &epilogue,
                            const TensorMap &map_a, const Map &...maps) {
  using Block = SwapCodes<Config, Weights>;
  using Part = typename Block::Part;
  static_assert(sizeof...(Map) == Config::matmuls, "a map for each matmul");
  constexpr int staged_size = Block::sums * Block::staged_rows * Block::staged_pitch;
  constexpr int others = Block::groups_of_warps - 1;
  SHARED(u64, full, Block::stages);
  SHARED(u64, empty, Block::stages);
  SHARED(u64, exchanged, 3); // parts from the cluster, given to the first warpgroup, taken by it
  SHARED(f32, staged, 4 * staged_size);
  u8 *ring = aligned_shared(1024);
  Part *parts = reinterpret_cast<Part *>(ring + Block::stages * Block::stage_bytes);
  launch_before_wait<Config>();
  const int warp = shuffle_index((i32)thread_x() / 32, 0), lane = (int)lane_id();
  const int group = warp / 4, feeder = warp - 4 * Block::groups_of_warps;
  const int rank = Block::split > 1 ? (int)cluster_rank() : 0;
  if (Block::split < Config::k_split && block_x() % (u32)Config::k_split != 0) {
    if (warp < 4)
      skip_epilogue(epilogue, shape.m());
    return;
  }
  const SwapWork work = swap_work<SwapSumsConfig<Config>, Block::depth>(shape, rank);
  using Stages = CodeStages<Config, Weights>;
  SwapProducer<Config, Stages, Shape> producer(shape, Stages{ring, full}, empty, work);
  if (feeder == 0) {
    auto init_others = [&] {
      mbarrier_init(exchanged, 1);
      mbarrier_init(exchanged + 1, larger(1, others * Block::multipliers));
      mbarrier_init(exchanged + 2, Block::multipliers);
    };
    begin_ring<Config>(full, empty, Block::entries > 0 ? 2 : 1, init_others, producer, map_a, maps...);
  }
  meet<Block>();
  if (feeder > 0) {
    if constexpr (Block::entries > 0) {
      if (!Config::weights_before_wait)
        pdl_wait();
      fill_scales<Config>(shape, weights, ring, full, empty, work, feeder - 1);
    }
    return;
  }
  pdl_wait();
  launch_after_wait<Config>();
  if (feeder == 0) {
    if (lane == 0)
      producer.go_on(map_a, maps...);
    return;
  }
  Epilogue begun = epilogue;
  if (group == 0)
    begin_epilogue(begun);
  RingPlace at{group, 0};
  int next = group;
  u32 parity = 0;
  for (i64 tile = work.tile; tile < work.tiles; tile += work.stride, parity ^= 1u) {
    BlockPlace place;
    place_columns<Config, Block::columns>(place, shape, tile);
    CodeSums<Config, Weights> sums;
    sums.load_whole(shape, weights, place);
    SwapOperands<SwapSumsConfig<Config>, Unscaled, Epilogue> operands;
    if (group == 0)
      operands.read(shape, Unscaled(), begun, place, rank);
    warp_barrier(); // products are the whole warp's
    sums.multiply_codes(ring, full, empty, at, next, work.steps);
    if constexpr (others > 0)
      sums.add_groups(parts, exchanged + 1, exchanged + 2, group, parity);
    if (group > 0)
      continue;
    if constexpr (Block::split > 1) {
      Part *from_cluster = parts + others * Block::group_parts;
      if (thread_x() == 0 && rank < Block::groups)
        mbarrier_arrive_expect(exchanged, Block::bytes_of_parts(rank));
      sums.add_parts(from_cluster, exchanged, rank);
    }
    sums.store(shape, place, rank, staged + warp * staged_size, Unscaled(), begun, operands);
  }
  if (group == 0)
    end_epilogue(begun, shape.m());
}
