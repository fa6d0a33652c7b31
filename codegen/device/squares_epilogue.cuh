#pragma once
// The epilogue of a matmul in front of a norm: it stores what the matmul's own does and, of each row, the sum
// of the squares of every 64 columns as they are stored. The kernel behind it normalises the rows by these:
// swap_ab_norm.cuh.

#include "swap_ab_parts.cuh"

/// Stores as `Store` does, and keeps the sum of the squares.
template <class Store>
struct SquaresStore {
  const Store &store;
  f32 *kept;
  template <class T, int N>
  DEVICE void operator()(T *to, const Vec<T, N> &values) const {
    f32 sum = 0.f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const f32 value = held_as<f32>(values, i);
      sum = fma_(value, value, sum);
    }
    *kept = sum;
    store(to, values);
  }
};

/// `squares`: for each row `per_row` sums, one of every 64 columns.
template <class Config, class Epilogue>
struct SquaresEpilogue {
  using Block = SwapAB<Config>;
  static constexpr int vectors = 64 / Config::vector; ///< of a row in a tile
  Epilogue epilogue;
  f32 *squares;
  i64 per_row;
  f32 *kept = nullptr; ///< in shared memory: of each vector of the block's tiles

  DEVICE void begin() {
    SHARED(f32, sums, Config::tiles * Block::rows * vectors);
    kept = sums;
  }
  template <int I>
  DEVICE auto operands(Matmul<I> which, i64 row, i64 column) const {
    return epilogue.operands(which, row, column);
  }
  template <int I, class Operands, class Sums, class Store>
  DEVICE void operator()(Matmul<I> which, i64 row, i64 column, const Operands &operands, const Sums &sums,
                         const Store &store) const {
    const int at = (int)(column % Block::columns);
    epilogue(which, row, column, operands, sums,
             SquaresStore<Store>{store, of_row(at / 64, row) + at % 64 / Config::vector});
  }
  /// By the threads that multiply, when all of them have stored what the block has of the tiles.
  DEVICE void finish_tiles(const BlockPlace &place, int rank, i64 m, i64 n) const {
    constexpr int own_rows = 8 * Block::own_groups;
    for (int i = (int)thread_x(); i < Config::tiles * own_rows; i += Block::multipliers) {
      const int tile = i / own_rows, group = i % own_rows / 8 * Block::split + rank, row = 8 * group + i % 8;
      if (group >= Block::groups || row >= m || place.column + 64 * tile >= n)
        continue;
      f32 sum = 0.f;
#pragma unroll
      for (int v = 0; v < vectors; ++v)
        sum += of_row(tile, row)[v];
      ::store(squares + (row * per_row + place.column / 64 + tile), sum);
    }
  }

private:
  DEVICE f32 *of_row(int tile, i64 row) const { return kept + (tile * Block::rows + row) * vectors; }
};
template <class Config, class Epilogue>
DEVICE SquaresEpilogue<Config, Epilogue> squares_epilogue(const Epilogue &epilogue, f32 *squares,
                                                          i64 per_row) {
  return {epilogue, squares, per_row};
}
template <class Config, class Epilogue>
DEVICE void begin_epilogue(SquaresEpilogue<Config, Epilogue> &epilogue) {
  epilogue.begin();
}
template <class Config, class Epilogue>
constexpr bool sums_squares<SquaresEpilogue<Config, Epilogue>> = true;
