#pragma once
// A finished tile of gemm_ring.cuh: where it lies in C, and its epilogue.

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

/// What the epilogue reads for 8 columns of a row of C, vector by vector.
template <class Config, int I, class Epilogue>
struct ColumnOperands {
  static constexpr int width = Config::vector;
  using Operands = decltype(static_cast<const Epilogue *>(nullptr)->operands(Matmul<I>(), 0, 0));
  Operands of[8 / width];

  /// Of columns in front of `end`; C has so many.
  DEVICE void load(const Epilogue &epilogue, i64 row, i64 column, i64 end) {
#pragma unroll
    for (int v = 0; v < 8; v += width)
      if (row >= 0 && column + v < end)
        of[v / width] = epilogue.operands(Matmul<I>(), row, column + v);
  }
  /// The products of all sums, one after the other, are in `words`.
  DEVICE void finish(const Epilogue &epilogue, i64 row, i64 column, i64 end, i64 columns,
                     const u32 *words) const {
    constexpr int sums = accumulators<Config>;
    using Result = typename Config::result;
#pragma unroll
    for (int v = 0; v < 8; v += width)
      if (row >= 0 && column + v < end) {
        Vec<Result, width> products[sums];
#pragma unroll
        for (int s = 0; s < sums; ++s) {
          Vec<Result, 8> all;
          copy_bytes(&all, words + 4 * s, 16);
          copy_bytes(&products[s], &all[v], sizeof(products[s]));
        }
        epilogue(Matmul<I>(), row, column + v, of[v / width], products,
                 StoreAt<width>{row * columns + column + v});
      }
  }
};

/// A tile whose products are rounded and whose epilogue is still to be done, piece by piece: a thread's part
/// of it. A piece is 8 words, 32 columns of both of the thread's rows, or, of two accumulators, of one row.
template <class Config, class Epilogue>
struct ParkedTile {
  using Block = Ring<Config>;
  static constexpr int sums = Block::sums, words = 8, row_words = 4 * sums;
  static constexpr int rows_of_piece = words / row_words, parts = 2 / rows_of_piece; ///< parts of 32 columns
  static constexpr int fragments = Block::tile_n / 8, pieces = (Block::tile_n + 31) / 32 * parts;
  static_assert(rows_of_piece > 0, "a piece is a row at least");
  u32 word[pieces * words];
  TilePlace place;
  int left = 0; ///< pieces
  /// Of the next piece, unless it depends on the tile whose they are.
  ColumnOperands<Config, 0, Epilogue> ahead[rows_of_piece];

  template <int Fragments>
  DEVICE void take(const f32 (&acc)[Fragments][4], const TilePlace &from) {
    int to = 0;
#pragma unroll
    for (int j = 0; j < fragments; j += 4)
#pragma unroll
      for (int h = 0; h < 4; h += 2)
#pragma unroll
        for (int s = 0; s < sums; ++s)
#pragma unroll
          for (int f = 0; f < 4; ++f) {
            // The last piece may be cut off.
            const f32(&pair)[4] = acc[s * fragments + (j + f < fragments ? j + f : 0)];
            word[to++] = packed_pair<typename Config::result>(pair[h], pair[h + 1]);
          }
    place = from;
    left = pieces;
  }

  /// Asks for what the next piece needs.
  template <class Shape>
  DEVICE void read_ahead(const Shape &shape, const Epilogue &epilogue) {
    if constexpr (!side_by_side<Config>)
      read<0>(ahead, shape, epilogue, pieces - left);
  }
  /// The epilogue of the next piece.
  template <class Shape>
  DEVICE void finish_piece(const Shape &shape, const Epilogue &epilogue) {
    const int number = pieces - left;
    u32 piece[words];
#pragma unroll
    for (int i = 0; i < words; ++i)
      piece[i] = word[i];
#pragma unroll
    for (int other = 1; other < pieces; ++other)
#pragma unroll
      for (int i = 0; i < words; ++i)
        piece[i] = choose_register(number == other, word[other * words + i], piece[i]);
    finish(shape, epilogue, piece, number);
    --left;
  }
  /// The same of a piece that nothing has been read for.
  template <class Shape>
  DEVICE void finish_next(const Shape &shape, const Epilogue &epilogue) {
    read_ahead(shape, epilogue);
    finish_piece(shape, epilogue);
  }
  /// The epilogue of all pieces: nothing else is to be done meanwhile.
  template <class Shape>
  DEVICE void finish_all(const Shape &shape, const Epilogue &epilogue) {
    if constexpr (side_by_side<Config>) {
      while (left > 0)
        finish_next(shape, epilogue);
    } else {
      ColumnOperands<Config, 0, Epilogue> next[2][rows_of_piece];
      read<0>(next[0], shape, epilogue, 0);
#pragma unroll
      for (int number = 0; number < pieces; ++number) {
        if (number + 1 < pieces)
          read<0>(next[(number + 1) % 2], shape, epilogue, number + 1);
        finish_of<0>(next[number % 2], shape, epilogue, word + number * words, number);
      }
    }
  }

private:
  DEVICE i64 column_of(int number) const {
    return place.column + number / parts * 32 + (i32)lane_id() % 4 * 8;
  }
  /// Where the columns end, of C or of the tile.
  DEVICE i64 end_of(i64 columns) const {
    const i64 end = place.column + Block::tile_n;
    return Block::tile_n % 32 == 0 || columns < end ? columns : end;
  }
  DEVICE i64 row_of(int number, int i) const {
    return (rows_of_piece == 2 ? i : number % 2) ? place.row[1] : place.row[0];
  }

  template <int I, class Shape>
  DEVICE void read(ColumnOperands<Config, I, Epilogue> (&to)[rows_of_piece], const Shape &shape,
                   const Epilogue &epilogue, int number) const {
#pragma unroll
    for (int i = 0; i < rows_of_piece; ++i)
      to[i].load(epilogue, row_of(number, i), column_of(number), end_of(shape.n(I)));
  }
  template <int I, class Shape>
  DEVICE void finish_of(const ColumnOperands<Config, I, Epilogue> (&operands)[rows_of_piece],
                        const Shape &shape, const Epilogue &epilogue, const u32 *piece, int number) const {
    u32 turned[words];
#pragma unroll
    for (int i = 0; i < words; ++i)
      turned[i] = piece[i];
#pragma unroll
    for (int i = 0; i < words; i += 4)
      transpose_in_quad(turned + i);
#pragma unroll
    for (int i = 0; i < rows_of_piece; ++i)
      operands[i].finish(epilogue, row_of(number, i), column_of(number), end_of(shape.n(I)), shape.n(I),
                         turned + i * row_words);
  }
  template <int I = 0, class Shape>
  DEVICE void finish(const Shape &shape, const Epilogue &epilogue, const u32 *piece, int number) const {
    if constexpr (!side_by_side<Config>) {
      finish_of<0>(ahead, shape, epilogue, piece, number);
    } else {
      if (place.matmul == I) {
        ColumnOperands<Config, I, Epilogue> operands[rows_of_piece];
        read<I>(operands, shape, epilogue, number);
        finish_of<I>(operands, shape, epilogue, piece, number);
      }
      if constexpr (I + 1 < Config::matmuls)
        finish<I + 1>(shape, epilogue, piece, number);
    }
  }
};

/// The epilogue of a tile of exact sums, for one matmul after the other until it is the tile's.
template <class Config, int I = 0, int Fragments, class Shape, class Epilogue>
DEVICE void finish_sums(const Shape &shape, const Epilogue &epilogue, const f32 (&acc)[Fragments][4],
                        const TilePlace &place) {
  constexpr int fragments = Ring<Config>::tile_n / 8, sums = Ring<Config>::sums, width = Config::vector;
  if (!side_by_side<Config> || place.matmul == I) {
    const i64 columns = shape.n(I);
#pragma unroll
    for (int j = 0; j < fragments; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += width) {
        const i64 row = place.row[e / 2], column = place.column + j * 8 + (i32)lane_id() % 4 * 2 + e % 2;
        Vec<f32, width> totals[sums];
#pragma unroll
        for (int s = 0; s < sums; ++s)
#pragma unroll
          for (int v = 0; v < width; ++v)
            totals[s][v] = acc[s * fragments + j][e + v];
        if (row >= 0 && column < columns)
          epilogue(Matmul<I>(), row, column, epilogue.operands(Matmul<I>(), row, column), totals,
                   StoreAt<width>{row * columns + column});
      }
  }
  if constexpr (side_by_side<Config> && I + 1 < Config::matmuls)
    finish_sums<Config, I + 1>(shape, epilogue, acc, place);
}
