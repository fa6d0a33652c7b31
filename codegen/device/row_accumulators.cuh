#pragma once

// What a row kernel accumulates: see row.cuh.

#include "cluster_reduce.cuh"
#include "math.cuh"
#include "reduce.cuh"

// What is accumulated over a row or a group. Maxima and minima of floats propagate NaN; integers wrap.
struct Sum {
  template <class T>
  static DEVICE T identity() {
    return (T)0;
  }
  template <class T>
  static DEVICE T combine(T a, T b) {
    if constexpr (is_wide_float<T>)
      return a + b;
    else
      return (T)((u64)a + (u64)b);
  }
  template <int Lanes>
  static DEVICE f32 lanes(f32 value) {
    return lanes_sum<Lanes>(value);
  }
  template <int Threads, int Site>
  static DEVICE f32 block(f32 value) {
    return block_sum<Threads, Site>(value);
  }
  template <int Threads, int Site, int Blocks>
  static DEVICE f32 cluster(f32 value) {
    return cluster_sum<Threads, Site, Blocks>(value);
  }
};
struct Product {
  template <class T>
  static DEVICE T identity() {
    return (T)1;
  }
  template <class T>
  static DEVICE T combine(T a, T b) {
    if constexpr (is_wide_float<T>)
      return a * b;
    else
      return (T)((u64)a * (u64)b);
  }
};
struct Max {
  template <class T>
  static DEVICE T identity() {
    if constexpr (is_wide_float<T>)
      return -inf_f32();
    else
      return int_range<T>::least;
  }
  template <class T>
  static DEVICE T combine(T a, T b) {
    if constexpr (is_wide_float<T>)
      return max_nan(a, b);
    else
      return a > b ? a : b;
  }
  template <int Lanes>
  static DEVICE f32 lanes(f32 value) {
    return lanes_max<Lanes>(value);
  }
  template <int Threads, int Site>
  static DEVICE f32 block(f32 value) {
    return block_max<Threads, Site>(value);
  }
  template <int Threads, int Site, int Blocks>
  static DEVICE f32 cluster(f32 value) {
    return cluster_max<Threads, Site, Blocks>(value);
  }
};
struct Min {
  template <class T>
  static DEVICE T identity() {
    if constexpr (is_wide_float<T>)
      return inf_f32();
    else
      return int_range<T>::most;
  }
  template <class T>
  static DEVICE T combine(T a, T b) {
    if constexpr (is_wide_float<T>)
      return min_nan(a, b);
    else
      return a < b ? a : b;
  }
  template <int Lanes>
  static DEVICE f32 lanes(f32 value) {
    return lanes_min<Lanes>(value);
  }
  template <int Threads, int Site>
  static DEVICE f32 block(f32 value) {
    return block_min<Threads, Site>(value);
  }
  template <int Threads, int Site, int Blocks>
  static DEVICE f32 cluster(f32 value) {
    return cluster_min<Threads, Site, Blocks>(value);
  }
};

template <class Op, class T>
struct Accumulator {
  T value = Op::template identity<T>();
  DEVICE void add(T x) { value = Op::combine(value, x); }
  // A square that nothing else reads is not rounded before it is added.
  DEVICE void add_square(T x) { value = fma_(x, x, value); }
};

// A mean that is exact where all elements are equal: a constant row less its mean is 0, which a norm would
// else blow up. Of numbers with few bits (f16, bf16) sums of equal ones are exact; of others their distances
// from the first are summed.
template <bool Wide>
struct Mean {};
template <bool Wide>
struct Accumulator<Mean<Wide>, f32> {
  f32 first = 0.f, value = 0.f;
  u32 count = 0;
  DEVICE void add(f32 x) {
    if (Wide && count == 0)
      first = x;
    value = value + (Wide ? x - first : x);
    ++count;
  }
  DEVICE f32 mean() const { return count != 0 ? first + value / (f32)count : 0.f; }
  // Of so many elements: a quotient that has no rest is exact.
  template <int Count>
  DEVICE f32 mean_of() const {
    constexpr f32 inverse = 1.f / (f32)Count;
    const f32 near = value * inverse;
    return first + ((Count & (Count - 1)) == 0 ? near : fma_(fma_(-near, (f32)Count, value), inverse, near));
  }
};

// The squares of a row's distances from its mean, taken in one pass over registers: each thread takes them
// about a mean of its own, and finishing them adds what the distances of the means make (see Moments).
struct RowMoments {
  f32 mean = 0.f, count = 0.f, squares = 0.f;
  DEVICE void add(f32 x) {
    const f32 apart = x - mean;
    squares = fma_(apart, apart, squares);
  }
};
