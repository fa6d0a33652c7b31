#pragma once
// Rows of A in shared memory as lanes multiply them with codes: of 32 neighbours along k lane q of a quad has
// eight, which lie side by side in the order in which CodePairs decodes them. Rows are whole lines and a half
// apart, so that the eight lanes of two rows meet every bank once.

#include "gemm.cuh"

/// `Bits` of a code. Of 4: lane q has neighbours 8 q to 8 q + 7; of 8: 4 q to 4 q + 3, and those 16 behind.
template <class T, int Bits>
struct CodeRows {
  /// Of rows of `depth` elements, a multiple of 64.
  static DEVICE constexpr i32 pitch(i32 depth) { return depth + 32; }
  /// Where element k of a row lies.
  static DEVICE constexpr i32 place(i32 k) {
    const i32 i = k % 32;
    return k - i + (Bits == 4 ? i - i % 8 + i % 4 * 2 + i % 8 / 4 : i % 16 / 4 * 8 + i / 16 * 4 + i % 4);
  }
  /// Stores elements k to k + 7 of a row, k a multiple of 8.
  static DEVICE void put(T *row, i32 k, const Vec<T, 8> &values) {
    u32 words[4], ordered[4];
    copy_bytes(words, &values, 16);
    if constexpr (Bits == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ordered[i] = permute_bytes(words[i / 2], words[i / 2 + 2], i % 2 == 0 ? 0x5410u : 0x7632u);
      store_vec<u32, 4>(reinterpret_cast<u32 *>(row + k), {{ordered[0], ordered[1], ordered[2], ordered[3]}});
    } else {
      store_vec<u32, 2>(reinterpret_cast<u32 *>(row + place(k)), {{words[0], words[1]}});
      store_vec<u32, 2>(reinterpret_cast<u32 *>(row + place(k + 4)), {{words[2], words[3]}});
    }
  }
};

/// Copies `count` rows of A, of K elements, to rows of `depth`, with zeros behind them; those that are not
/// there are the last one again.
template <int Bits, class Shape, class A, class T>
DEVICE void stage_rows(const Shape &shape, const A &a, T *to, i32 count, i32 depth, int threads) {
  using Rows = CodeRows<T, Bits>;
  const i32 k = (i32)shape.k(), m = (i32)shape.m(), per_row = depth / 8;
  for (i32 i = (i32)thread_x(); i < count * per_row; i += threads) {
    const i32 row = i / per_row, at = i % per_row * 8;
    Vec<T, 8> values{};
    if (at < k)
      values = load_vec<T, 8>(a.matrix(0, 0) + (a.row(0, row < m ? row : m - 1) + at));
    Rows::put(to + row * Rows::pitch(depth), at, values);
  }
}

/// The same rows for a prologue, which computes rows of K elements. `at`: elements from A's first.
template <class T, int Bits, i32 K, i32 Depth>
struct ComputedCodeRows {
  using Rows = CodeRows<T, Bits>;
  T *rows;
  i64 at;
  DEVICE ComputedCodeRows operator+(i64 elements) const { return ComputedCodeRows{rows, at + elements}; }
  template <int N>
  DEVICE void put(const Vec<T, N> &values) const {
    static_assert(8 % N == 0, "neighbours within eight");
    T *const row = rows + (i32)((u32)at / (u32)K) * Rows::pitch(Depth);
    const i32 k = (i32)((u32)at % (u32)K);
    if constexpr (N == 8) {
      Rows::put(row, k, values);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e)
        row[Rows::place(k + e)] = values[e];
    }
  }
  /// Zeros behind K in the first `count` rows, by a block of `threads`.
  DEVICE void clear_behind(i32 count, int threads) const {
    constexpr i32 behind = (Depth - K) / 8;
    if constexpr (behind > 0)
      for (i32 i = (i32)thread_x(); i < count * behind; i += threads)
        Rows::put(rows + i / behind * Rows::pitch(Depth), K + i % behind * 8, Vec<T, 8>{});
  }
};
template <class T, int Bits, i32 K, i32 Depth, int N>
DEVICE void store_vec(const ComputedCodeRows<T, Bits, K, Depth> &to, const Vec<T, N> &values) {
  to.put(values);
}
template <class T, int Bits, i32 K, i32 Depth>
DEVICE void store(const ComputedCodeRows<T, Bits, K, Depth> &to, T value) {
  to.put(Vec<T, 1>{{value}});
}
