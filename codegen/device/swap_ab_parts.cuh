#pragma once
// What gemm_swap_ab computes beside its matmuls: A in front of them, by each block, and heads after them.
//
// Prologue, where Config::computed_boxes is not 0:
//   depth                            K
//   operator()(const ComputedRows<T, rows, depth> &)
//                                    by all threads of the block: waits for the kernels before this one and
//                                    computes the rows of A
// Epilogue of heads, a HeadEpilogue:
//   rounding(Matmul<I>, row, column, sums, store)
//                                    the ops up to the heads, as in gemm.cuh; calls store(Vec<type, N>)
//   heads(place, tile, rank)         by the threads that multiply: what follows, from the tile's rows, which
//                                    lie tile_pitch apart: heads_of_tile in swap_ab_heads.cuh

#include "meet.cuh"
#include "proxy.cuh"
#include "swap_ab_ring.cuh"

/// The rows of A in shared memory as products read them: boxes of 64 along k, 128 bytes a row, of which 16 at
/// a time lie in the order of TMA's swizzle. Only the `count` boxes from `first` on are kept. `at`: elements
/// from A's first.
template <class T, int Rows, i64 K>
struct ComputedRows {
  T *boxes;
  int first, count;
  i64 at;
  DEVICE ComputedRows operator+(i64 elements) const {
    return ComputedRows{boxes, first, count, at + elements};
  }
  template <int N>
  DEVICE void put(const Vec<T, N> &values) const {
    static_assert(8 % N == 0, "neighbours within 16 bytes");
    const u32 row = (u32)at / (u32)K, k = (u32)at % (u32)K;
    const int box = (int)(k / 64u) - first;
    if (box >= 0 && box < count)
      store_vec<T, N>(boxes + ((i64)box * Rows + row) * 64 + ((k % 64u / 8u) ^ row % 8u) * 8u + k % 8u,
                      values);
  }
};
template <class T, int Rows, i64 K, int N>
DEVICE void store_vec(const ComputedRows<T, Rows, K> &to, const Vec<T, N> &values) {
  to.put(values);
}
template <class T, int Rows, i64 K>
DEVICE void store(const ComputedRows<T, Rows, K> &to, T value) {
  to.put(Vec<T, 1>{{value}});
}

template <i64 K, class Fill>
struct ComputedBy {
  static constexpr i64 depth = K;
  Fill fill;
  template <class Rows>
  DEVICE void operator()(const Rows &rows) const {
    fill(rows);
  }
};
template <i64 K, class Fill>
DEVICE ComputedBy<K, Fill> computed_by(const Fill &fill) {
  return ComputedBy<K, Fill>{fill};
}

/// A, where the prologue computes it, ready for products. Boxes beyond K are zero, as B is there.
template <class Config, class Prologue>
DEVICE void compute_rows(const Prologue &prologue, typename Config::type *to, const SwapWork &work) {
  using Block = SwapAB<Config>;
  using T = typename Config::type;
  constexpr i64 depth = Prologue::depth;
  const int first = work.first * Block::boxes, count = work.steps * Block::boxes;
  constexpr int whole = (int)(depth / 64);
  const int inside = whole - first < count ? whole - first : count;
  constexpr int vectors = Block::row_box / 8;
  for (int i = (inside > 0 ? inside : 0) * vectors + (int)thread_x(); i < count * vectors;
       i += Block::threads)
    store_vec<T, 8>(to + i * 8, Vec<T, 8>{});
  if constexpr (depth % 64 != 0)
    barrier(); // rows end in a box that begins with zeros
  prologue(ComputedRows<T, Config::rows, depth>{to, first, count, 0});
  fence_proxy_async();
  barrier();
}

template <class Type, class Rounding, class Heads>
struct HeadEpilogue {
  using type = Type;
  Rounding rounding;
  Heads heads;
};
template <class Type, class Rounding, class Heads>
DEVICE HeadEpilogue<Type, Rounding, Heads> head_epilogue(const Rounding &rounding, const Heads &heads) {
  return HeadEpilogue<Type, Rounding, Heads>{rounding, heads};
}
template <class Epilogue>
constexpr bool makes_heads = false;
template <class Type, class Rounding, class Heads>
constexpr bool makes_heads<HeadEpilogue<Type, Rounding, Heads>> = true;

/// Elements between the rows of a tile in shared memory: neighbours lie in other banks.
template <class Config>
constexpr int tile_pitch = SwapAB<Config>::columns + 8;

template <class T>
struct PutAt {
  T *to;
  template <int N>
  DEVICE void operator()(const Vec<T, N> &values) const {
    store_vec<T, N>(to, values);
  }
};
/// Rounds the sums of the block's matmul, into the tile.
template <class Config, int Index = 0, int N, class T, class Rounding>
DEVICE void round_into_tile(const Rounding &rounding, const BlockPlace &place, i64 row, i64 column,
                            const Vec<f32, N> (&sums)[accumulators<Config>], T *to) {
  if (!side_by_side<Config> || place.matmul == Index)
    rounding(Matmul<Index>(), row, column, sums, PutAt<T>{to});
  if constexpr (side_by_side<Config> && Index + 1 < Config::matmuls)
    round_into_tile<Config, Index + 1>(rounding, place, row, column, sums, to);
}
