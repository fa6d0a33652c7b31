#pragma once
// The main loop of matrix products on sm_90a. A block stays and takes one tile of C after the other: 128 rows and some
// columns. One warpgroup fills a ring in shared memory with tiles of A and B, 64 elements along k at a time; two
// others multiply 64 rows each. A finished tile is rounded and parked in registers: its epilogue is done piece by
// piece while the products of the next tile run.
//
// `Config`:
//   type             bf16 or f16, of A and B
//   result           the type to which products are rounded before the epilogue takes them: 16 bits; or f32, where the
//                    epilogue takes the sums, and follows the products at once
//   tile_n           columns of C of a tile, for each accumulator: a multiple of 16; of all accumulators at most 256
//   stages           steps of 64 along k in the ring
//   vector           neighbours that the epilogue takes: up to 8, of f32 up to 2
//   k_major          neighbours in memory of B are neighbours along k; else along n, and tile_n is a multiple of 64
//   matmuls, combined
//
// Who fills the ring says of each tile where it lies; who multiplies asks
//
// Rows:
//   operator()(i)    which row of C row i of a tile's `first` and on is

#include "gemm.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

/// A tile of C, in shared memory for those who multiply it.
struct alignas(16) TileOfC {
  i32 first, rows; ///< its rows, see Rows; none: there are no more tiles
  i32 column, matmul;
};

template <class Config>
struct Ring {
  using T = typename Config::type;
  static constexpr int sums = accumulators<Config>, tile_m = 128, tile_n = Config::tile_n, depth = 64;
  static constexpr int stages = Config::stages, threads = 384, fillers = 128;
  static constexpr int a_size = tile_m * depth, b_size = tile_n * depth; ///< elements of a tile
  static constexpr int stage_size = a_size + sums * b_size;
  static constexpr u32 b_bytes = sums * b_size * (u32)sizeof(T);
  static constexpr bool parks = sizeof(typename Config::result) == 2;
  static_assert(tile_n % 16 == 0 && sums * tile_n <= 256, "at most 128 sums of a thread");

  /// Of tiles on their way: those with a step in the ring, and the one that is written.
  static constexpr int places = stages + 1;

  T *tiles;          ///< of each stage one of A and `sums` of B
  u64 *full, *empty; ///< mbarriers of each stage
  TileOfC *place;    ///< `places` of them, in turn; known once the tile's first stage is full

  DEVICE T *a(int stage) const { return tiles + stage * stage_size; }
  DEVICE T *b(int stage) const { return a(stage) + a_size; }
  /// By one thread. A stage is full when so many have arrived and what they expect has come.
  DEVICE void init(u32 arrivals) const {
    for (int i = 0; i < stages; ++i) {
      mbarrier_init(full + i, arrivals);
      mbarrier_init(empty + i, 8);
    }
    fence_mbarrier_init();
  }
};

/// A stage, and the parity of its phase when it is full.
struct RingPlace {
  int stage = 0;
  u32 parity = 0;
  template <int Stages>
  DEVICE void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// The warp's number in the block, which the compiler sees to be one for all of its lanes.
DEVICE int uniform_warp() { return shuffle_index((i32)thread_x() / 32, 0); }

/// Asks for columns from `column` on of a matrix B, from k on: one of the tiles of a stage.
template <class Config>
DEVICE void load_columns(typename Config::type *to, const TensorMap &map, u64 *full, i32 k, i32 column, i32 z) {
  if constexpr (Config::k_major) {
    tma_load_tile(to, map, full, k, column, z);
  } else {
#pragma unroll
    for (int panel = 0; panel < Config::tile_n / 64; ++panel)
      tma_load_tile(to + panel * 64 * Ring<Config>::depth, map, full, column + panel * 64, k, z);
  }
}

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

/// Of two words one goes to the lane whose number differs in `bit`, for one of its own. The choices are values: of
/// choices between places the compiler makes branches, with an exchange in each.
DEVICE void exchange_words(u32 &low, u32 &high, bool is_high, int bit) {
  const u32 other = shuffle_xor(is_high ? low : high, bit), first = is_high ? other : low, second = is_high ? high : other;
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
  DEVICE void finish(const Epilogue &epilogue, i64 row, i64 column, i64 end, i64 columns, const u32 *words) const {
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
        epilogue(Matmul<I>(), row, column + v, of[v / width], products, StoreAt<width>{row * columns + column + v});
      }
  }
};

/// A tile whose products are rounded and whose epilogue is still to be done, piece by piece: a thread's part of it. A
/// piece is 8 words, 32 columns of both of the thread's rows, or, of two accumulators, of one row.
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

  /// Reads what the next piece needs: long before it is done.
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
  DEVICE i64 column_of(int number) const { return place.column + number / parts * 32 + (i32)lane_id() % 4 * 8; }
  /// Where the columns end, of C or of the tile.
  DEVICE i64 end_of(i64 columns) const {
    const i64 end = place.column + Block::tile_n;
    return Block::tile_n % 32 == 0 || columns < end ? columns : end;
  }
  DEVICE i64 row_of(int number, int i) const { return (rows_of_piece == 2 ? i : number % 2) ? place.row[1] : place.row[0]; }

  template <int I, class Shape>
  DEVICE void read(ColumnOperands<Config, I, Epilogue> (&to)[rows_of_piece], const Shape &shape,
                   const Epilogue &epilogue, int number) const {
#pragma unroll
    for (int i = 0; i < rows_of_piece; ++i)
      to[i].load(epilogue, row_of(number, i), column_of(number), end_of(shape.n(I)));
  }
  template <int I, class Shape>
  DEVICE void finish_of(const ColumnOperands<Config, I, Epilogue> (&operands)[rows_of_piece], const Shape &shape,
                        const Epilogue &epilogue, const u32 *piece, int number) const {
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

/// Starts the products of a stage: 64 rows from `row` on.
template <class Config, int Fragments>
DEVICE void start_products(f32 (&acc)[Fragments][4], const Ring<Config> &ring, int stage, int row, bool add) {
  using T = typename Config::type;
  const T *tile_a = ring.a(stage) + row * 64, *tile_b = ring.b(stage);
  warpgroup_arrive();
#pragma unroll
  for (int k = 0; k < 64; k += 16) {
    const u64 a = wgmma_descriptor(tile_a + k, 1024);
    if constexpr (Config::k_major)
      wgmma_rows<T>(acc, a, wgmma_descriptor(tile_b + k, 1024), add || k > 0);
    else
      wgmma_rows_by_depth<T>(acc, a, wgmma_descriptor(tile_b + k * 64, 64 * 128), add || k > 0);
  }
  warpgroup_commit();
}

/// What the two warpgroups do that multiply.
template <class Config, class Shape, class Rows, class Epilogue>
DEVICE void multiply_tiles(const Ring<Config> &ring, const Shape &shape, const Rows &rows, const Epilogue &epilogue) {
  using Block = Ring<Config>;
  const int group = uniform_warp() / 4;
  const i32 steps = (i32)ceil_div(shape.k(), Block::depth);
  RingPlace at;
  int before = 0, number = 0;
  auto release = [&] { // nothing reads the step before any more
    if (lane_id() == 0)
      mbarrier_arrive(ring.empty + before);
  };
  auto advance = [&] {
    before = at.stage;
    at.template advance<Block::stages>();
  };
  ParkedTile<Config, Epilogue> parked;
  f32 acc[Block::sums * Block::tile_n / 8][4];
  while (true) {
    mbarrier_wait(ring.full + at.stage, at.parity);
    const TileOfC tile = ring.place[number];
    number = number + 1 < Block::places ? number + 1 : 0;
    const i32 count = shuffle_index(tile.rows, 0); // the compiler sees that it is one for all lanes
    if (count == 0)
      break;
    if (group * 64 >= count) { // none for this warpgroup
      for (i32 step = 0; step < steps; ++step) {
        mbarrier_wait(ring.full + at.stage, at.parity);
        warp_barrier();
        advance();
        release();
      }
      continue;
    }
    warp_barrier(); // products are the whole warp's
#pragma unroll 1
    for (i32 step = 0; step < steps; ++step) {
      mbarrier_wait(ring.full + at.stage, at.parity);
      start_products<Config>(acc, ring, at.stage, group * 64, step > 0);
      if constexpr (Block::parks) // not before the products, which wait for all that is asked for
        if (parked.left > 0)
          parked.read_ahead(shape, epilogue);
      warpgroup_wait<1>();
      if (step > 0)
        release();
      advance();
      if constexpr (Block::parks)
        if (parked.left > 0)
          parked.finish_piece(shape, epilogue);
    }
    const TilePlace place = place_of(tile, rows, group);
    warpgroup_wait<0>();
    fence_operand(acc);
    if constexpr (Block::parks)
      while (parked.left > 0) // k is short
        parked.finish_next(shape, epilogue);
    release();
    if constexpr (Block::parks)
      parked.take(acc, place);
    else
      finish_sums<Config>(shape, epilogue, acc, place);
  }
  if constexpr (Block::parks)
    if (parked.left > 0)
      parked.finish_all(shape, epilogue);
}
