#pragma once
// Products of rows by the matrices of the experts that they are routed to. A template of matrix
// multiplication works for one expert at a time: for it, the expert's rows are all rows of A and C. Blocks
// find them in the list of choices, in order, so that sums are the same in every run.
//
// Routing:
//   rows(), experts()    how many there are
//   chosen(row)          the expert of a row of A: from the end where negative; out of range, the nearest
//
// B has a member `expert`, the one whose matrix it is.
//
// `Config`: group_per_row    there are no more rows than experts: a group of blocks looks for the rows of
// each
//                            row's expert, and the first of them works; else a group for each expert

#include "gemm.cuh"

template <class Routing>
DEVICE i64 expert_of(const Routing &routing, i64 row) {
  const i64 chosen = routing.chosen(row), wrapped = chosen < 0 ? chosen + routing.experts() : chosen;
  return wrapped < 0 ? 0 : wrapped < routing.experts() ? wrapped : routing.experts() - 1;
}

/// Some of the rows of one expert: `list` has them, in shared memory.
template <int Most, int Threads>
struct ExpertRows {
  static constexpr int warps = Threads / 32;
  i32 *list, *counts; ///< Most and `warps` elements

  /// Lists the expert's rows from number `first` on, as many as there are and fit. The number of all.
  template <class Routing>
  DEVICE i64 find(const Routing &routing, i64 expert, i64 first) const {
    const int lane = (int)lane_id(), warp = (int)thread_x() / 32;
    i64 found = 0;
    for (i64 start = 0; start < routing.rows(); start += Threads) {
      const i64 row = start + (i64)thread_x();
      const bool is_its = row < routing.rows() && expert_of(routing, row) == expert;
      const u32 mask = warp_ballot(is_its);
      if (lane == 0)
        counts[warp] = bit_count(mask);
      barrier();
      i64 rank = found + bit_count(mask & ((1u << lane) - 1u)) - first;
#pragma unroll
      for (int i = 0; i < warps; ++i) {
        rank += i < warp ? counts[i] : 0;
        found += counts[i];
      }
      if (is_its && rank >= 0 && rank < Most)
        list[rank] = (i32)row;
      barrier();
    }
    return found;
  }
};

/// The sizes of one expert's product: some of its rows.
template <class Shape>
struct ExpertShape {
  const Shape &shape;
  i64 rows;
  DEVICE i64 m() const { return rows; }
  DEVICE i64 n(int matmul) const { return shape.n(matmul); }
  DEVICE i64 k() const { return shape.k(); }
};

/// A with the rows that a list has.
template <class A>
struct ExpertA {
  using element = typename A::element;
  static constexpr bool quantised = A::quantised, k_major = A::k_major;
  static constexpr int bits = A::bits, k_per_scale = A::k_per_scale, rows_per_scale = A::rows_per_scale;
  const A &a;
  const i32 *list;
  DEVICE auto matrix(int matmul, i64 z) const { return a.matrix(matmul, z); }
  DEVICE i64 row(int matmul, i64 i) const { return a.row(matmul, list[i]); }
  DEVICE i64 depth(int matmul, i64 k) const { return a.depth(matmul, k); }
  DEVICE auto decoder(int matmul, i64 i, i64 k) const { return a.decoder(matmul, list[i], k); }
};

/// The epilogue of the rows that a list has.
template <class Epilogue, class Shape>
struct ExpertEpilogue {
  const Epilogue &epilogue;
  const Shape &shape;
  const i32 *list;
  template <int I, class Sums, int N>
  DEVICE void operator()(Matmul<I> which, i64 row, i64 column, const Sums &sums, StoreAt<N>) const {
    const i64 line = list[row];
    epilogue(which, line, column, sums, StoreAt<N>{line * shape.n(I) + column});
  }
};

/// Calls `work(place, shape, list)` for every `TileM` rows of the block's expert and its columns.
template <class Config, int TileM, int TileN, int Threads, class Shape, class Routing, class Work>
DEVICE void for_rows_of_expert(const Shape &shape, const Routing &routing, const Work &work) {
  SHARED(i32, list, TileM);
  SHARED(i32, counts, Threads / 32);
  const ExpertRows<TileM, Threads> rows{list, counts};
  i64 tiles = 0;
#pragma unroll
  for (int i = 0; i < (side_by_side<Config> ? Config::matmuls : 1); ++i)
    tiles += ceil_div(shape.n(i), TileN);
  const i64 group = block_x() / tiles;
  const i64 expert = Config::group_per_row ? expert_of(routing, group) : group;
  BlockPlace place;
  place_columns<Config, TileN>(place, shape, block_x() % tiles);
  place.z = expert;
  for (i64 first = 0, count = 1; first < count; first += TileM) {
    count = rows.find(routing, expert, first);
    if (count == 0 || (Config::group_per_row && first == 0 && list[0] != group))
      return;
    const i64 left = count - first;
    work(place, ExpertShape<Shape>{shape, left < TileM ? left : TileM}, list);
    barrier(); // before the list changes
  }
}
