#pragma once
// The epilogue of sums that a warp holds in the layout of mma.m16n8k16: 16 rows, of which lane l has two
// neighbouring columns in rows l / 4 and l / 4 + 8 of each 8 columns. For gemm_ring.cuh and gemm_sm100.cuh.

#include "scaled_sums.cuh"

/// Where a thread's rows l / 4 and l / 4 + 8 of a warp's sixteen lie.
struct TilePlace {
  i32 row[2] = {-1, -1}; ///< of C; negative: outside
  i32 column = 0;        ///< the tile's first
  i32 matmul = 0;
};

/// A sum of the tile with its scales: of row h of the two, in the column so many behind the tile's first,
/// from k on.
template <class Config, class Scales, class Shape, class S>
DEVICE auto scaled_total(const Scales &scales, const Shape &shape, const TilePlace &place, int sum, int h,
                         int behind, i64 k, S value) {
  const int matmul = side_by_side<Config> ? place.matmul : sum;
  const i32 last = (i32)shape.n(matmul) - 1, column = place.column + behind;
  return scales.total(matmul, place.row[h] < 0 ? 0 : place.row[h], column < last ? column : last, k, value);
}

/// Of two words one goes to the lane whose number differs in `bit`, for one of its own. The choices are
/// values: of choices between places the compiler makes branches, with an exchange in each.
DEVICE void exchange_words(u32 &low, u32 &high, bool is_high, int bit) {
  const u32 other = shuffle_xor(is_high ? low : high, bit), first = is_high ? other : low,
            second = is_high ? high : other;
  low = first;
  high = second;
}
/// Word i of lane q of four becomes word q of lane i.
DEVICE void transpose_in_quad(u32 *words) {
  const bool odd = lane_id() % 2 != 0, upper = lane_id() / 2 % 2 != 0;
  exchange_words(words[0], words[1], odd, 1);
  exchange_words(words[2], words[3], odd, 1);
  exchange_words(words[0], words[2], upper, 2);
  exchange_words(words[1], words[3], upper, 2);
}

/// 8 neighbours of a row of C; outside of C, or of the tile, nothing is stored. The epilogue is computed
/// there too, of the row and columns nearest to it: code without branches hides behind that of the next
/// piece.
struct EightColumns {
  i64 row, column, end; ///< a negative row is outside, as are columns from `end` on
  i64 columns;          ///< C has so many
  DEVICE i64 safe_row() const { return row < 0 ? 0 : row; }
  template <int Width>
  DEVICE i64 safe_column(int v) const {
    return column + v + Width <= columns ? column + v : columns - Width;
  }
  DEVICE bool inside(int v) const { return row >= 0 && column + v < end; }
};

/// What the epilogue reads for them, vector by vector.
template <class Config, int I, class Epilogue>
struct ColumnOperands {
  static constexpr int width = Config::vector;
  using Operands = decltype(static_cast<const Epilogue *>(nullptr)->operands(Matmul<I>(), 0, 0));
  Operands of[8 / width];

  DEVICE void load(const Epilogue &epilogue, const EightColumns &at) {
#pragma unroll
    for (int v = 0; v < 8; v += width)
      of[v / width] = epilogue.operands(Matmul<I>(), at.safe_row(), at.safe_column<width>(v));
  }
  /// The products of all sums, one after the other, are in `words`.
  DEVICE void finish(const Epilogue &epilogue, const EightColumns &at, const u32 *words) const {
    Vec<typename Config::result, 8> products[accumulators<Config>];
#pragma unroll
    for (int s = 0; s < accumulators<Config>; ++s)
      copy_bytes(&products[s], words + 4 * s, 16);
    finish(epilogue, at, products);
  }
  DEVICE void finish(const Epilogue &epilogue, const EightColumns &at,
                     const Vec<typename Config::result, 8> (&all)[accumulators<Config>]) const {
    constexpr int sums = accumulators<Config>;
#pragma unroll
    for (int v = 0; v < 8; v += width) {
      Vec<typename Config::result, width> products[sums];
#pragma unroll
      for (int s = 0; s < sums; ++s)
        copy_bytes(&products[s], &all[s][v], sizeof(products[s]));
      const i64 row = at.safe_row(), column = at.safe_column<width>(v);
      epilogue(Matmul<I>(), row, column, of[v / width], products,
               StoreAt<width>{row * at.columns + column, at.inside(v)});
    }
  }
};

/// The epilogue of exact sums, of each accumulator as many fragments one after the other from the tile's
/// first column on; for one matmul after the other until it is the tile's.
template <class Config, int I = 0, int Fragments, class S, class Shape, class Scales, class Epilogue>
DEVICE void finish_sums(const Shape &shape, const Scales &scales, const Epilogue &epilogue,
                        const S (&acc)[Fragments][4], const TilePlace &place) {
  constexpr int sums = accumulators<Config>, fragments = Fragments / sums, width = Config::vector;
  using Total = decltype(scales.total(0, 0, 0, 0, S()));
  if (!side_by_side<Config> || place.matmul == I) {
    const i64 columns = shape.n(I);
#pragma unroll
    for (int j = 0; j < fragments; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += width) {
        const int behind = j * 8 + (i32)lane_id() % 4 * 2 + e % 2;
        const i64 row = place.row[e / 2], column = place.column + behind;
        Vec<Total, width> totals[sums];
#pragma unroll
        for (int s = 0; s < sums; ++s)
#pragma unroll
          for (int v = 0; v < width; ++v)
            totals[s][v] = scaled_total<Config>(scales, shape, place, s, e / 2, behind + v, 0,
                                                acc[s * fragments + j][e + v]);
        if (row >= 0 && column < columns)
          epilogue(Matmul<I>(), row, column, epilogue.operands(Matmul<I>(), row, column), totals,
                   StoreAt<width>{row * columns + column});
      }
  }
  if constexpr (side_by_side<Config> && I + 1 < Config::matmuls)
    finish_sums<Config, I + 1>(shape, scales, epilogue, acc, place);
}
