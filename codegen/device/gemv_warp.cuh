#pragma once
// A few columns of C for one row of A, without tensor cores. B's rows (the columns of C) are contiguous along
// k. What a warp multiplies next, of the next columns too, is on its way while it multiplies.

#include "gemm.cuh"
#include "reduce.cuh"

/// `Config`:
///   warps, k_split            of a block; those that share out K
///   columns                   of C that a warp computes at once; every n is a multiple
///   vector, unroll            elements of a row of B that a lane loads at once; steps along k on their way
///   whole_steps               K is a multiple of the steps of all that share it out
///   weights_before_wait       loads of B are issued before the previous kernels have finished
///   matmuls, combined
template <class Config, class Shape, class A, class B>
struct GemvWarp {
  using ElementA = typename A::element;
  using ElementB = typename B::element;
  static constexpr int sums = accumulators<Config>, columns = Config::columns, unroll = Config::unroll,
                       length = Config::vector;
  static constexpr i64 step = 32 * length * Config::k_split, part = unroll * step;
  static_assert(!side_by_side<Config> && B::k_major, "one epilogue, rows of B along k");

  const Shape &shape;
  const A &a;
  const B &b;
  const i64 first; ///< the lane's place in a step
  const i64 parts = ceil_div(shape.k(), part);
  decltype(static_cast<const B *>(nullptr)->matrix(0, 0)) next[columns][sums]; ///< rows of B to ask for
  Vec<ElementB, length> ring[unroll][columns][sums];

  /// `split`: which part of the steps along k is this warp's.
  DEVICE GemvWarp(const Shape &shape, const A &a, const B &b, int split)
      : shape(shape), a(a), b(b), first((split * 32 + lane_id()) * length) {}

  /// The columns to ask for from now on, of matrix z of `own`, which is `b` but for the matrix.
  DEVICE void move_to(const B &own, i64 z, i64 column) {
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int s = 0; s < sums; ++s)
        next[c][s] = own.matrix(s, z) + own.row(s, column + c);
  }
  DEVICE void request(int u, i64 k) {
    const bool inside = Config::whole_steps || k < shape.k();
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int s = 0; s < sums; ++s)
        ring[u][c][s] =
            inside ? load_lines_vec<ElementB, length>(next[c][s] + b.depth(s, k)) : Vec<ElementB, length>{};
  }
  DEVICE void request_first() {
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      request(u, first + u * step);
  }
  /// The sums of the columns that are on their way, in each lane a part of them. `advance` moves to the next
  /// ones, if there are any.
  template <class Advance>
  DEVICE void multiply(i64 row, f32 (&sum)[columns][sums], const Advance &advance) {
    const ElementA *line = a.matrix(0, 0) + a.row(0, row);
    multiply([&](i64 k) { return load_vec<ElementA, length>(line + a.depth(0, k)); }, sum, advance);
  }
  /// Where `left(k)` is the vector of A at k.
  template <class Left, class Advance>
  DEVICE void multiply(const Left &left, f32 (&sum)[columns][sums], const Advance &advance) {
#pragma unroll 1
    for (i64 p = 0; p < parts; ++p) {
      const i64 k = first + p * part;
      const bool ends = p + 1 == parts, more = !ends || advance();
      const i64 then = ends ? first : k + part;
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        add_products(u, left, k + u * step, sum);
        if (more)
          request(u, then + u * step);
      }
    }
  }

private:
  template <class Left>
  DEVICE void add_products(int u, const Left &left_at, i64 k, f32 (&sum)[columns][sums]) {
    const bool inside = Config::whole_steps || k < shape.k();
    const Vec<ElementA, length> left = inside ? left_at(k) : Vec<ElementA, length>{};
#pragma unroll
    for (int e = 0; e < length; ++e)
#pragma unroll
      for (int c = 0; c < columns; ++c)
#pragma unroll
        for (int s = 0; s < sums; ++s)
          sum[c][s] = fma_(element_f32(left, e), element_f32(ring[u][c][s], e), sum[c][s]);
  }
};

/// The sums of all lanes; lane c gets those of column c.
template <int Columns, int Sums>
DEVICE void column_sums(const f32 (&parts)[Columns][Sums], Vec<f32, 1> (&to)[Sums]) {
#pragma unroll
  for (int c = 0; c < Columns; ++c)
#pragma unroll
    for (int s = 0; s < Sums; ++s) {
      const f32 total = warp_sum(parts[c][s]);
      if (c == 0 || (int)lane_id() == c)
        to[s][0] = total;
    }
}

/// Takes what an epilogue hands out, exactly.
struct TakeValue {
  f32 &to;
  template <class T>
  DEVICE void operator()(T value) const {
    to = exact_value(value);
  }
};
