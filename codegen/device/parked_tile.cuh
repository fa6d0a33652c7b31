#pragma once
// A finished tile of gemm_ring.cuh: where it lies in C, and its epilogue.

#include "fragment_epilogue.cuh"
#include "tile_ring.cuh"

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
                               : pieces % 8 == 0       ? 8
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
