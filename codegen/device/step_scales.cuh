#pragma once
// Scales of quantised operands that differ from step to step along k, in the ring of gemm_ring.cuh beside the
// tiles: three warps that fill it read them, each those of every third step, long before the products need
// them. Who multiplies reads them from shared memory while the tensor cores work.

#include "scaled_sums.cuh"
#include "tile_ring.cuh"

/// Where the scale of a tile's column lies behind those of its rows. Four lanes of a row read theirs of 16
/// columns, two and two, as 16 bytes each.
DEVICE int place_of_column_scale(int column) {
  return column / 16 * 16 + column % 8 / 2 * 4 + column / 8 % 2 * 2 + column % 2;
}

/// By a warp, `which` of those that do. It asks for the scales of a step before there is room for them.
template <class Config, class Tiles, class Shape, class Scales>
DEVICE void fill_step_scales(Tiles tiles, const Ring<Config> &ring, const Shape &shape, const Scales &scales,
                             int which) {
  using Block = Ring<Config>;
  static_assert(Block::stages >= Block::scale_warps, "who waits is less than a round of the ring ahead");
  constexpr int rows = Block::tile_m / 32, columns = (Config::tile_n + 31) / 32;
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth), lane = (i32)lane_id();
  RingPlace at;
  int turn = 0; // whose step it is
  while (tiles.next()) {
    const TileOfC tile{tiles.first(), tiles.rows, tiles.column, tiles.matmul};
    const i32 end = (i32)shape.n(tile.matmul);
    for (i32 step = 0; step < steps; ++step, at.template advance<Block::stages>()) {
      const bool mine = turn == which;
      turn = turn + 1 < Block::scale_warps ? turn + 1 : 0;
      if (!mine)
        continue;
      const i64 k = (i64)step * Block::depth;
      f32 of_rows[rows], of_columns[Block::sums][columns];
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const i32 row = lane + 32 * i;
        of_rows[i] = scales.of_row(tile.first + (row < tile.rows ? row : tile.rows - 1), k);
      }
#pragma unroll
      for (int s = 0; s < Block::sums; ++s)
#pragma unroll
        for (int i = 0; i < columns; ++i) {
          const i32 column = tile.column + lane + 32 * i;
          of_columns[s][i] = scales.of_column(tile.matmul + s, column < end ? column : end - 1, k);
        }
      mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
      f32 *to = ring.scales(at.stage);
#pragma unroll
      for (int i = 0; i < rows; ++i)
        to[lane + 32 * i] = of_rows[i];
#pragma unroll
      for (int s = 0; s < Block::sums; ++s)
#pragma unroll
        for (int i = 0; i < columns; ++i)
          if (Config::tile_n % 32 == 0 || lane + 32 * i < Config::tile_n)
            to[Block::tile_m + s * Config::tile_n + place_of_column_scale(lane + 32 * i)] = of_columns[s][i];
      warp_barrier();
      if (lane == 0)
        mbarrier_arrive(ring.full + at.stage);
    }
  }
}

/// Of a thread's two rows and its columns, for one step.
template <class Config>
struct StepScales {
  static constexpr int fragments = Ring<Config>::sums * Config::tile_n / 8;
  f32 row[2];
  Vec<f32, 4> column[fragments / 2];

  DEVICE void load(const f32 *scales, int group) {
    const int first = group * 64 + uniform_warp() % 4 * 16 + (int)lane_id() / 4;
    row[0] = scales[first];
    row[1] = scales[first + 8];
#pragma unroll
    for (int i = 0; i < fragments / 2; ++i)
      column[i] = load_vec<f32, 4>(scales + Ring<Config>::tile_m + 16 * i + (int)lane_id() % 4 * 4);
  }
  /// total += sums times both scales
  template <class S>
  DEVICE void add(f32 (&total)[fragments][4], const S (&sums)[fragments][4]) const {
#pragma unroll
    for (int i = 0; i < fragments; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        total[i][e] = fma_((f32)sums[i][e], row[e / 2] * column[i / 2][i % 2 * 2 + e % 2], total[i][e]);
  }
};
