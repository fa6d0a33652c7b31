#pragma once
// A finished tile of gemm_ring.cuh: where it lies in C, and its epilogue.

#include "scaled_sums.cuh"
#include "tile_ring.cuh"

/// Where a thread's rows l / 4 and l / 4 + 8 of a warp's sixteen lie.
struct TilePlace {
  i32 row[2] = {-1, -1}; ///< of C; negative: outside
  i32 column = 0;        ///< the tile's first
  i32 matmul = 0;
};
template <class Rows>
DEVICE TilePlace place_of(const TileOfC &tile, const Rows &rows, int group) {
  TilePlace place;
  const i32 row = group * 64 + uniform_warp() % 4 * 16 + (i32)lane_id() / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h)
    place.row[h] = row + 8 * h < tile.rows ? rows(tile.first + row + 8 * h) : -1;
  place.column = tile.column;
  place.matmul = tile.matmul;
  return place;
}

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
    constexpr int sums = accumulators<Config>;
    using Result = typename Config::result;
#pragma unroll
    for (int v = 0; v < 8; v += width) {
      Vec<Result, width> products[sums];
#pragma unroll
      for (int s = 0; s < sums; ++s) {
        Vec<Result, 8> all;
        copy_bytes(&all, words + 4 * s, 16);
        copy_bytes(&products[s], &all[v], sizeof(products[s]));
      }
      const i64 row = at.safe_row(), column = at.safe_column<width>(v);
      epilogue(Matmul<I>(), row, column, of[v / width], products,
               StoreAt<width>{row * at.columns + column, at.inside(v)});
    }
  }
};

/// A tile whose products are rounded and whose epilogue is still to be done, piece by piece: a thread's part
/// of it. A piece is 32 columns of one of the thread's two rows: a short one hides behind the products of a
/// step. Its number is a constant in its code, since words that an index chooses take as long as an epilogue.
template <class Config, class Epilogue>
struct ParkedTile {
  using Block = Ring<Config>;
  static constexpr int sums = Block::sums, words = 4 * sums;
  static constexpr int fragments = Block::tile_n / 8, pieces = (Block::tile_n + 31) / 32 * 2;
  /// Pieces are done in groups of so many, whose words are the first: code for all of them takes long to
  /// compile.
  static constexpr int group = Config::exact_steps > 0 ? Config::exact_steps
                               : Config::scaled_steps  ? 2
                               : pieces % 8 == 0       ? (Config::gathered && sums > 1 ? 4 : 8)
                               : pieces % 7 == 0       ? 7
                               : pieces % 6 == 0       ? 6
                                                       : pieces;
  static_assert(pieces % group == 0 || !Block::parks, "groups are whole");
  u32 word[pieces * words];
  TilePlace place;
  int done = pieces; ///< those of whole groups
  /// Of this piece and the next one, unless the part depends on the tile.
  ColumnOperands<Config, 0, Epilogue> ahead[2];

  DEVICE int left() const { return pieces - done; }
  template <int Fragments, class S, class Shape, class Scales>
  DEVICE void take(const S (&acc)[Fragments][4], const TilePlace &from, const Shape &shape,
                   const Scales &scales) {
    const int column = (i32)lane_id() % 4 * 2;
    int to = 0;
#pragma unroll
    for (int j = 0; j < fragments; j += 4)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int s = 0; s < sums; ++s)
#pragma unroll
          for (int f = 0; f < 4; ++f) {
            const int fragment = j + f < fragments ? j + f : 0; // the last piece may be cut off
            const S(&four)[4] = acc[s * fragments + fragment];
            f32 pair[2];
#pragma unroll
            for (int e = 0; e < 2; ++e)
              pair[e] = scaled_total<Config>(scales, shape, from, s, h, fragment * 8 + column + e, 0,
                                             four[2 * h + e]);
            word[to++] = packed_pair<typename Config::result>(pair[0], pair[1]);
          }
    place = from;
    done = 0;
  }

  /// Asks for what the first piece of a group needs.
  template <class Shape>
  DEVICE void read_first(const Shape &shape, const Epilogue &epilogue) {
    if (done < pieces)
      read(ahead[0], shape, epilogue, 0);
  }
  /// Asks for what the piece after piece `number` of the group needs.
  template <class Shape>
  DEVICE void read_next(const Shape &shape, const Epilogue &epilogue, int number) {
    if (number + 1 < group || (is_even && done + group < pieces))
      read(ahead[(number + 1) % 2], shape, epilogue, number + 1);
  }
  /// The epilogue of piece `number` of the group.
  template <class Shape>
  DEVICE void finish_piece(const Shape &shape, const Epilogue &epilogue, int number) const {
    u32 turned[words];
#pragma unroll
    for (int i = 0; i < words; ++i)
      turned[i] = word[number * words + i];
#pragma unroll
    for (int i = 0; i < words; i += 4)
      transpose_in_quad(turned + i);
    finish(shape, epilogue, turned, number);
  }
  /// The next group's words become the first.
  template <class Shape>
  DEVICE void next_group(const Shape &shape, const Epilogue &epilogue) {
#pragma unroll
    for (int i = 0; i + group * words < pieces * words; ++i)
      word[i] = word[i + group * words];
    done += group;
    if constexpr (!is_even)
      read_first(shape, epilogue);
  }

private:
  static constexpr bool is_even =
      group % 2 == 0; ///< the next group's first piece has the same place in `ahead`

  /// Of piece `number` of the group.
  DEVICE EightColumns columns_of(int number, i64 columns) const {
    const i64 end = place.column + Block::tile_n;
    const int row = is_even ? number % 2 : (done + number) % 2,
              strip = is_even ? done / 2 + number / 2 : (done + number) / 2;
    return {row == 0 ? place.row[0] : place.row[1], place.column + strip * 32 + (i32)lane_id() % 4 * 8,
            Block::tile_n % 32 == 0 || columns < end ? columns : end, columns};
  }
  template <class Shape>
  DEVICE void read(ColumnOperands<Config, 0, Epilogue> &to, const Shape &shape, const Epilogue &epilogue,
                   int number) const {
    if constexpr (!side_by_side<Config>)
      to.load(epilogue, columns_of(number, shape.n(0)));
  }
  template <int I = 0, class Shape>
  DEVICE void finish(const Shape &shape, const Epilogue &epilogue, const u32 *turned, int number) const {
    const EightColumns at = columns_of(number, shape.n(I));
    if constexpr (!side_by_side<Config>) {
      ahead[number % 2].finish(epilogue, at, turned);
    } else {
      if (place.matmul == I) {
        ColumnOperands<Config, I, Epilogue> operands;
        operands.load(epilogue, at);
        operands.finish(epilogue, at, turned);
      }
      if constexpr (I + 1 < Config::matmuls)
        finish<I + 1>(shape, epilogue, turned, number);
    }
  }
};

/// The epilogue of a tile of exact sums, for one matmul after the other until it is the tile's.
template <class Config, int I = 0, int Fragments, class S, class Shape, class Scales, class Epilogue>
DEVICE void finish_sums(const Shape &shape, const Scales &scales, const Epilogue &epilogue,
                        const S (&acc)[Fragments][4], const TilePlace &place) {
  constexpr int fragments = Ring<Config>::tile_n / 8, sums = Ring<Config>::sums, width = Config::vector;
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
