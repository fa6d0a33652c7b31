#pragma once

#include "math.cuh"

// Arithmetic on whole vectors. That of f16 and bf16 rounds each element once, which is what f32 arithmetic
// and a rounding after it give.

template <class T, int N> DEVICE Vec<T, N> splat_vec(T value) {
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i)
    result[i] = value;
  return result;
}

#define FUSION_VECTORS(name, symbol)                                                                         \
  template <class T, int N> DEVICE Vec<T, N> name##_vec(const Vec<T, N> &a, const Vec<T, N> &b) {            \
    static_assert(same_type<T, f16> || same_type<T, bf16>, "a type of 16 bits");                             \
    Vec<T, N> result;                                                                                        \
    if constexpr (N == 1) {                                                                                  \
      result[0] = from_f32<T>(to_f32(a[0]) symbol to_f32(b[0]));                                             \
    } else {                                                                                                 \
      _Pragma("unroll") for (int i = 0; i < N; i += 2) {                                                     \
        u32 x, y;                                                                                            \
        copy_bytes(&x, &a.at[i], 4);                                                                         \
        copy_bytes(&y, &b.at[i], 4);                                                                         \
        const u32 pair = same_type<T, f16> ? f16_pair_##name(x, y) : bf16_pair_##name(x, y);                 \
        copy_bytes(&result.at[i], &pair, 4);                                                                 \
      }                                                                                                      \
    }                                                                                                        \
    return result;                                                                                           \
  }
FUSION_VECTORS(mul, *)
FUSION_VECTORS(add, +)
FUSION_VECTORS(sub, -)
#undef FUSION_VECTORS

template <class T, int N> DEVICE Vec<f32, N> quotients(const Vec<T, N> &x, const Divisor &by) {
  Vec<f32, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i)
    result[i] = divide(element_f32(x, i), by);
  return result;
}

// Element `i` of a vector, to be compared.
template <class Held, class T, int N> DEVICE Held held_as(const Vec<T, N> &values, int i) {
  if constexpr (same_type<Held, f32>)
    return element_f32(values, i);
  else
    return (Held)values[i];
}
