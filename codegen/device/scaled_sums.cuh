#pragma once
// What is done to the sums of a tile before anything else: the scales of quantised operands multiply them.
// They are one for all of k, or for each step along k.

#include "gemm.cuh"

/// Sums as they are.
struct Unscaled {
  template <class S>
  DEVICE S total(int, i64, i64, i64, S sum) const {
    return sum;
  }
};
/// The scales of `Width` neighbouring columns of a row, along all of k.
template <class Scales, int Width>
struct ScalesOf {
  DEVICE void read(const Scales &, int, i64, i64) {}
  template <class S>
  DEVICE S scaled(int, S sum) const {
    return sum;
  }
};

/// a, b: their decoders are A's and B's, see gemm.cuh.
template <class A, class B>
struct ScaledSums {
  A a;
  B b;
  template <class S>
  DEVICE auto total(int matmul, i64 row, i64 column, i64 k, S sum) const {
    return b.decoder(matmul, column, k).scaled(a.decoder(0, row, k).scaled(sum));
  }
  DEVICE f32 of_row(i64 row, i64 k) const { return a.decoder(0, row, k).scaled(1.f); }
  DEVICE f32 of_column(int matmul, i64 column, i64 k) const {
    return b.decoder(matmul, column, k).scaled(1.f);
  }
};
template <class A, class B, int Width>
struct ScalesOf<ScaledSums<A, B>, Width> {
  decltype(static_cast<const A *>(nullptr)->decoder(0, 0, 0)) of_row;
  decltype(static_cast<const B *>(nullptr)->decoder(0, 0, 0)) of_columns[Width];
  DEVICE void read(const ScaledSums<A, B> &scales, int matmul, i64 row, i64 column) {
    of_row = scales.a.decoder(0, row, 0);
#pragma unroll
    for (int i = 0; i < Width; ++i)
      of_columns[i] = scales.b.decoder(matmul, column + i, 0);
  }
  /// As ScaledSums::total() does, of the i-th column.
  template <class S>
  DEVICE auto scaled(int i, S sum) const {
    return of_columns[i].scaled(of_row.scaled(sum));
  }
};
template <class A, class B>
DEVICE ScaledSums<A, B> scaled_sums(const A &a, const B &b) {
  return {a, b};
}
