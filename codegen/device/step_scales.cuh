#pragma once
// Scales of quantised operands that differ from step to step along k, in the ring of gemm_ring.cuh beside the
// tiles: two warps that fill it read them, some steps at once, long before the products need them. Who
// multiplies reads them from shared memory while the tensor cores work.

#include "scaled_sums.cuh"
#include "tile_ring.cuh"

/// Where the scale of a tile's column lies behind those of its rows. Four lanes of a row read theirs of 16
/// columns, two and two, as 16 bytes each.
DEVICE int place_of_column_scale(int column) {
  return column / 16 * 16 + column % 8 / 2 * 4 + column / 8 % 2 * 2 + column % 2;
}

/// By a warp, `which` of Block::scale_warps: those of a part of the rows and of a part of the columns. Scales
/// of one row lie side by side along k: neighbouring lanes read those of a few steps.
template <class Config, class Tiles, class Shape, class Scales>
DEVICE void fill_step_scales(Tiles tiles, const Ring<Config> &ring, const Shape &shape, const Scales &scales,
                             int which) {
  using Block = Ring<Config>;
  constexpr int at_once = Config::one_column_scale ? 4 : 2, lines = 32 / at_once;
  constexpr int all_lines = lines * Block::scale_warps, rows = Block::tile_m / all_lines, sums = Block::sums;
  constexpr int columns = Config::one_column_scale ? 1 : (Config::tile_n + all_lines - 1) / all_lines;
  static_assert(Block::tile_m % all_lines == 0, "lanes have as many rows each");
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth);
  const i32 line = which * lines + (i32)lane_id() / at_once, ahead = (i32)lane_id() % at_once;
  RingPlace at;
  while (tiles.next()) {
    const TileOfC tile{tiles.first(), tiles.rows, tiles.column, tiles.matmul};
    const i32 end = (i32)shape.n(tile.matmul);
    for (i32 step = 0; step < steps; step += at_once) {
      const i64 k = (i64)(step + ahead < steps ? step + ahead : steps - 1) * Block::depth;
      f32 of_rows[rows], of_columns[sums][columns];
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const i32 row = line + all_lines * i;
        of_rows[i] = scales.of_row(tile.first + (row < tile.rows ? row : tile.rows - 1), k);
      }
#pragma unroll
      for (int s = 0; s < sums; ++s)
#pragma unroll
        for (int i = 0; i < columns; ++i) {
          const i32 column = tile.column + (Config::one_column_scale ? 0 : line + all_lines * i);
          of_columns[s][i] = scales.of_column(tile.matmul + s, column < end ? column : end - 1, k);
        }
      for (int j = 0; j < at_once && step + j < steps; ++j, at.template advance<Block::stages>()) {
        mbarrier_wait(ring.empty + at.stage, at.parity ^ 1);
        f32 *to = ring.scales(at.stage);
        if (ahead == j) {
#pragma unroll
          for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int s = 0; s < (Config::one_column_scale ? sums : 1); ++s)
              to[s * Block::tile_m + line + all_lines * i] =
                  Config::one_column_scale ? of_rows[i] * of_columns[s][0] : of_rows[i];
          if constexpr (!Config::one_column_scale)
#pragma unroll
            for (int s = 0; s < sums; ++s)
#pragma unroll
              for (int i = 0; i < columns; ++i) {
                const int column = line + all_lines * i;
                if (Config::tile_n % all_lines == 0 || column < Config::tile_n)
                  to[Block::tile_m + s * Config::tile_n + place_of_column_scale(column)] = of_columns[s][i];
              }
        }
        warp_barrier();
        if (lane_id() == 0)
          mbarrier_arrive(ring.full + at.stage);
      }
    }
  }
}

/// Which of a tile's rows is a thread's first; the other is the eighth after it.
DEVICE int first_row_of_thread(int group) {
  return group * 64 + uniform_warp() % 4 * 16 + (int)lane_id() / 4;
}

/// Of a thread's two rows and its columns, for one step.
template <class Config, bool OneColumn = Config::one_column_scale>
struct StepScales {
  static constexpr int fragments = Ring<Config>::sums * Config::tile_n / 8;
  f32 row[2];
  Vec<f32, 4> column[fragments / 2];

  /// `scales`: the step's; `first`: see first_row_of_thread().
  DEVICE void load(const f32 *scales, int first) {
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

/// The columns of an accumulator have one scale: it has multiplied those of the rows.
template <class Config>
struct StepScales<Config, true> {
  static constexpr int sums_of = Ring<Config>::sums, fragments = Config::tile_n / 8;
  f32 both[sums_of][2];

  DEVICE void load(const f32 *scales, int first) {
#pragma unroll
    for (int s = 0; s < sums_of; ++s)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        both[s][h] = scales[s * Ring<Config>::tile_m + first + 8 * h];
  }
  template <class S>
  DEVICE void add(f32 (&total)[sums_of * fragments][4], const S (&sums)[sums_of * fragments][4]) const {
#pragma unroll
    for (int i = 0; i < sums_of * fragments; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        total[i][e] = fma_((f32)sums[i][e], both[i / fragments][e / 2], total[i][e]);
  }
};
