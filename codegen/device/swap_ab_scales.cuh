#pragma once
// Of gemm_swap_ab.cuh: scales of bytes that differ along k. Three warps read those of every third step and
// leave them in shared memory, where a step's sums meet them.

#include "scaled_sums.cuh"
#include "swap_ab_ring.cuh"

/// By a warp, `which` of those that do. It asks for the scales of a step before there is room for them.
template <class Config, class Shape, class Scales>
DEVICE void fill_swap_scales(const Shape &shape, const Scales &scales, f32 *step_scales, u64 *full,
                             u64 *empty, const SwapWork &work, int which) {
  using Block = SwapAB<Config>;
  constexpr int of_columns = Block::tiles * 64, column_turns = Block::boxes * of_columns / 32,
                row_count = Block::boxes * Block::rows, row_turns = (row_count + 31) / 32;
  const int lane = (int)lane_id();
  for_own_steps<Config, Block>(
      shape, work, empty, which, [&](const BlockPlace &place, int step, int stage, const AwaitStage &await) {
        auto k_of = [&](int box) {
          const i64 k = (i64)step * Block::depth + box * Block::box_depth;
          return k < shape.k() ? k : shape.k() - 1;
        };
        f32 column_scales[column_turns], row_scales[row_turns];
#pragma unroll
        for (int i = 0; i < column_turns; ++i) {
          const int first = 32 * i, tile = first % of_columns / 64, sum = tile / Config::tiles;
          const i64 n = shape.n(place.matmul + sum),
                    column = place.column + tile % Config::tiles * 64 + first % 64 + lane;
          column_scales[i] =
              scales.of_column(place.matmul + sum, column < n ? column : n - 1, k_of(first / of_columns));
        }
#pragma unroll
        for (int i = 0; i < row_turns; ++i) {
          const int index = 32 * i + lane, row = index % Block::rows;
          row_scales[i] = scales.of_row(row < shape.m() ? row : shape.m() - 1, k_of(index / Block::rows));
        }
        await();
        f32 *to = step_scales + stage * Block::step_scales;
#pragma unroll
        for (int i = 0; i < column_turns; ++i)
          to[32 * i / of_columns * Block::box_scales + 32 * i % of_columns + lane] = column_scales[i];
#pragma unroll
        for (int i = 0; i < row_turns; ++i)
          if (const int index = 32 * i + lane; row_count % 32 == 0 || index < row_count)
            to[index / Block::rows * Block::box_scales + of_columns + index % Block::rows] = row_scales[i];
        warp_barrier();
        if (lane == 0)
          mbarrier_arrive(full + stage);
      });
}

/// What a step's sums are multiplied by when they are added: nothing, or the scales of a thread's two columns
/// of each tile, and of its two rows of each eight.
template <class Config, bool Scaled = SwapAB<Config>::scaled>
struct SwapStepScales {
  using Block = SwapAB<Config>;
  f32 column[Block::chains][2];
  Vec<f32, 2> row[Block::boxes][Block::groups];

  DEVICE void load(const f32 *scales) {
    const int warp = (int)thread_x() / 32 % 4, lane = (int)lane_id();
#pragma unroll
    for (int b = 0; b < Block::boxes; ++b) {
      const f32 *box = scales + b * Block::box_scales;
#pragma unroll
      for (int t = 0; t < Block::tiles; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          column[b * Block::tiles + t][h] = box[64 * t + 16 * warp + lane / 4 + 8 * h];
#pragma unroll
      for (int j = 0; j < Block::groups; ++j)
        row[b][j] = load_vec<f32, 2>(box + 64 * Block::tiles + 8 * j + lane % 4 * 2);
    }
  }
  template <class S>
  DEVICE void add(f32 (&to)[Block::groups][4], const S (&sums)[Block::groups][4], int chain) const {
#pragma unroll
    for (int j = 0; j < Block::groups; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        to[j][e] =
            fma_((f32)sums[j][e], column[chain][e / 2] * row[chain / Block::tiles][j][e % 2], to[j][e]);
  }
};
template <class Config>
struct SwapStepScales<Config, false> {
  static constexpr int groups = SwapAB<Config>::groups;
  DEVICE void load(const f32 *) {}
  DEVICE void add(f32 (&to)[groups][4], const f32 (&sums)[groups][4], int) const {
#pragma unroll
    for (int j = 0; j < groups; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        to[j][e] += sums[j][e];
  }
};
