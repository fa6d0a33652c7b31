#pragma once
// What is done to the sums of a tile before anything else: the scales of quantised operands, which are one for
// all of k, multiply them.

#include "gemm.cuh"

/// Sums as they are.
struct Unscaled {
  template <class S>
  DEVICE S total(int, i64, i64, S sum) const {
    return sum;
  }
};
/// a, b: their decoders are A's and B's, see gemm.cuh.
template <class A, class B>
struct ScaledSums {
  A a;
  B b;
  template <class S>
  DEVICE auto total(int matmul, i64 row, i64 column, S sum) const {
    return b.decoder(matmul, column, 0).scaled(a.decoder(0, row, 0).scaled(sum));
  }
};
template <class A, class B>
DEVICE ScaledSums<A, B> scaled_sums(const A &a, const B &b) {
  return {a, b};
}
