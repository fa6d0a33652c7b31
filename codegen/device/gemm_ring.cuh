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
//   tile_n           columns of C of a tile, for each accumulator: a multiple of 32; of all accumulators at most 256
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
  static_assert(tile_n % 32 == 0 && sums * tile_n <= 256, "fragments in fours, at most 128 sums of a thread");

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

/// Runs the epilogue for vectors of a row of C, of 16 bits each: 8 columns from `column` on of all sums, one after the
/// other in `words`.
template <class Config, int I, class Shape, class Epilogue>
DEVICE void finish_columns(Matmul<I> which, const Shape &shape, const Epilogue &epilogue, i64 row, i64 column,
                           const u32 *words) {
  constexpr int width = Config::vector, sums = accumulators<Config>;
  using Result = typename Config::result;
  const i64 columns = shape.n(I);
#pragma unroll
  for (int v = 0; v < 8; v += width)
    if (column + v < columns) {
      Vec<Result, width> products[sums];
#pragma unroll
      for (int s = 0; s < sums; ++s) {
        Vec<Result, 8> all;
        copy_bytes(&all, words + 4 * s, 16);
        copy_bytes(&products[s], &all[v], sizeof(products[s]));
      }
      epilogue(which, row, column + v, products, StoreAt<width>{row * columns + column + v});
    }
}

/// A tile whose products are rounded and whose epilogue is still to be done, piece by piece: a thread's part of it. A
/// piece is 8 words, 32 columns of both of the thread's rows, or, of two accumulators, of one row.
template <class Config>
struct ParkedTile {
  using Block = Ring<Config>;
  static constexpr int sums = Block::sums, words = 8, row_words = 4 * sums;
  static constexpr int pieces = Block::tile_n / 32 * sums, rows_of_piece = 2 / sums;
  static_assert(sums <= 2, "a piece is a row at least");
  u32 word[pieces * words];
  TilePlace place;
  int left = 0; ///< pieces

  template <int Fragments>
  DEVICE void take(const f32 (&acc)[Fragments][4], const TilePlace &from) {
    int to = 0;
#pragma unroll
    for (int j = 0; j < Block::tile_n / 8; j += 4)
#pragma unroll
      for (int h = 0; h < 4; h += 2)
#pragma unroll
        for (int s = 0; s < sums; ++s)
#pragma unroll
          for (int f = 0; f < 4; ++f) {
            const f32(&pair)[4] = acc[s * (Block::tile_n / 8) + j + f];
            word[to++] = packed_pair<typename Config::result>(pair[h], pair[h + 1]);
          }
    place = from;
    left = pieces;
  }

  /// The epilogue of the next piece.
  template <class Shape, class Epilogue>
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
#pragma unroll
    for (int i = 0; i < words; i += 4)
      transpose_in_quad(piece + i);
    finish_of<0>(shape, epilogue, piece, number);
    --left;
  }

private:
  template <int I, class Shape, class Epilogue>
  DEVICE void finish_of(const Shape &shape, const Epilogue &epilogue, const u32 *piece, int number) const {
    if (!side_by_side<Config> || place.matmul == I) {
      const i64 column = place.column + number / sums * 32 + (i32)lane_id() % 4 * 8;
#pragma unroll
      for (int i = 0; i < rows_of_piece; ++i) {
        const i32 row = (sums == 1 ? i : number % 2) ? place.row[1] : place.row[0];
        if (row >= 0)
          finish_columns<Config>(Matmul<I>(), shape, epilogue, row, column, piece + i * row_words);
      }
    }
    if constexpr (side_by_side<Config> && I + 1 < Config::matmuls)
      finish_of<I + 1>(shape, epilogue, piece, number);
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
          epilogue(Matmul<I>(), row, column, totals, StoreAt<width>{row * columns + column});
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
  ParkedTile<Config> parked;
  f32 acc[Block::sums * Block::tile_n / 8][4];
  while (true) {
    mbarrier_wait(ring.full + at.stage, at.parity);
    const TileOfC tile = ring.place[number];
    number = number + 1 < Block::places ? number + 1 : 0;
    const i32 count = shuffle_index(tile.rows, 0); // the compiler sees that it is one for all lanes
    if (count > 0 && group * 64 >= count) {        // none for this warpgroup
      for (i32 step = 0; step < steps; ++step) {
        mbarrier_wait(ring.full + at.stage, at.parity);
        warp_barrier();
        advance();
        release();
      }
      continue;
    }
    if (count > 0) {
      warp_barrier(); // products are the whole warp's
#pragma unroll 1
      for (i32 step = 0; step < steps; ++step) {
        mbarrier_wait(ring.full + at.stage, at.parity);
        start_products<Config>(acc, ring, at.stage, group * 64, step > 0);
        warpgroup_wait<1>();
        if (step > 0)
          release();
        advance();
        if constexpr (Block::parks)
          if (parked.left > 0)
            parked.finish_piece(shape, epilogue);
      }
      warpgroup_wait<0>();
      fence_operand(acc);
    }
    if constexpr (Block::parks)
      while (parked.left > 0) // behind the last tile, or where k is short
        parked.finish_piece(shape, epilogue);
    if (count == 0)
      break;
    const TilePlace place = place_of(tile, rows, group);
    release();
    if constexpr (Block::parks)
      parked.take(acc, place);
    else
      finish_sums<Config>(shape, epilogue, acc, place);
  }
}
