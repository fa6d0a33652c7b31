#pragma once

#include "machine.cuh"

// Conversions between any two types, integer arithmetic, activations: the same on the device and in
// emulation.

// Integers: the range as a float that compares exactly, and conversion that saturates as cvt.rzi does.
template <class I> struct int_range;
#define FUSION_RANGE(I, low, high)                                                                           \
  template <> struct int_range<I> {                                                                          \
    static constexpr I least = (I)(low), most = (I)(high);                                                   \
  };
FUSION_RANGE(i8, -128, 127)
FUSION_RANGE(u8, 0, 255)
FUSION_RANGE(i16, -32768, 32767)
FUSION_RANGE(u16, 0, 65535)
FUSION_RANGE(i32, -2147483647 - 1, 2147483647)
FUSION_RANGE(u32, 0, 4294967295u)
FUSION_RANGE(i64, -9223372036854775807ll - 1, 9223372036854775807ll)
FUSION_RANGE(u64, 0, 18446744073709551615ull)
#undef FUSION_RANGE

template <class I> DEVICE bool is_negative(I value) {
  if constexpr (int_range<I>::least != 0)
    return value < 0;
  else
    return false;
}

// Toward zero; out of range takes the nearest end; NaN becomes 0.
template <class I, class F> DEVICE I saturate_to_int(F value) {
  if (value != value)
    return 0;
  if (value >= (F)int_range<I>::most)
    return int_range<I>::most;
  if (value <= (F)int_range<I>::least)
    return int_range<I>::least;
  return (I)value;
}

template <class T> DEVICE f32 to_f32(T value) {
  if constexpr (same_type<T, f16>)
    return f32_of_f16(value.bits);
  else if constexpr (same_type<T, bf16>)
    return f32_of_bf16(value.bits);
  else if constexpr (same_type<T, f8e4m3>)
    return f32_of_e4m3(value.bits);
  else if constexpr (same_type<T, f8e5m2>)
    return f32_of_e5m2(value.bits);
  else
    return (f32)value;
}

// Nearest even; f8 saturates, f16 and bf16 overflow to infinity; integers truncate and saturate.
template <class T> DEVICE T from_f32(f32 value) {
  if constexpr (same_type<T, f16>)
    return f16{f16_of_f32(value)};
  else if constexpr (same_type<T, bf16>)
    return bf16{bf16_of_f32(value)};
  else if constexpr (same_type<T, f8e4m3>)
    return f8e4m3{e4m3_of_f32(value)};
  else if constexpr (same_type<T, f8e5m2>)
    return f8e5m2{e5m2_of_f32(value)};
  else if constexpr (same_type<T, bool>)
    return value != 0.f;
  else if constexpr (is_wide_float<T>)
    return (T)value;
  else
    return saturate_to_int<T>(value);
}

// Of a value that T has: an infinity of f8e5m2 stays one.
template <class T> DEVICE T exact_from_f32(f32 value) {
  if constexpr (same_type<T, f8e5m2>)
    return f8e5m2{(u8)(f16_of_f32(value) >> 8)};
  else
    return from_f32<T>(value);
}

template <class T> DEVICE f32 round_to(f32 value) {
  if constexpr (same_type<T, bf16>)
    return round_to_bf16(value);
  else
    return to_f32(from_f32<T>(value));
}

// Products, sums and differences of two values of T, rounded to T. A bf16 in the upper half of a register is
// its own f32, so that one instruction does both.
#define FUSION_ROUNDED(name, symbol)                                                                         \
  template <class T> DEVICE f32 name##_to(f32 a, f32 b) {                                                    \
    if constexpr (same_type<T, bf16>)                                                                        \
      return f32_of_bits(bf16_pair_##name(bits_of(a), bits_of(b)));                                          \
    else                                                                                                     \
      return round_to<T>(a symbol b);                                                                        \
  }
FUSION_ROUNDED(mul, *)
FUSION_ROUNDED(add, +)
FUSION_ROUNDED(sub, -)
#undef FUSION_ROUNDED

// f64 to an f32 that a further rounding to a narrow float takes to where one rounding would have: inexact
// values get an odd last bit.
DEVICE f32 round_to_odd(f64 value) {
  const f32 nearest = (f32)value;
  if (value != value || (f64)nearest == value || (bits_of(nearest) & 0x7fffffffu) == 0x7f800000u)
    return nearest;
  const bool outward = (value < 0 ? -(f64)nearest : (f64)nearest) > (value < 0 ? -value : value);
  return f32_of_bits((bits_of(nearest) - (outward ? 1u : 0u)) | 1u);
}
// The same from an integer of any width.
template <class I> DEVICE f32 round_int_to_odd(I value) {
  if constexpr (sizeof(I) <= 2) {
    return (f32)value;
  } else if constexpr (sizeof(I) == 4) {
    return round_to_odd((f64)value);
  } else {
    const bool negative = is_negative(value);
    u64 magnitude = negative ? 0 - (u64)value : (u64)value;
    if (magnitude >> 53)
      magnitude = (magnitude & ~0x7ffull) | ((magnitude & 0x7ffull) != 0 ? 0x800ull : 0ull);
    const f64 exact = (f64)magnitude;
    return round_to_odd(negative ? -exact : exact);
  }
}

// Any type to any type, rounded once; integer to integer wraps, float to integer saturates, to bool is `!=
// 0`.
template <class To, class From> DEVICE To convert(From value) {
  if constexpr (same_type<To, From>)
    return value;
  else if constexpr (is_narrow_float<From>)
    return from_f32<To>(to_f32(value));
  else if constexpr (is_narrow_float<To> && same_type<From, f32>)
    return from_f32<To>(value);
  else if constexpr (is_narrow_float<To> && same_type<From, f64>)
    return from_f32<To>(round_to_odd(value));
  else if constexpr (is_narrow_float<To>)
    return from_f32<To>(round_int_to_odd(value));
  else if constexpr (same_type<To, bool>)
    return value != (From)0;
  else if constexpr (is_wide_float<From> && !is_wide_float<To>)
    return saturate_to_int<To>(value);
  else
    return (To)value;
}

// 1 / sqrt(x), within one unit of the last place.
DEVICE f32 inverse_sqrt_(f32 x) {
  const f32 estimate = rsqrt_estimate(x);
  const f32 error = fma_(-(x * estimate), estimate, 1.f);
  return fabs_(error) < 0.5f ? fma_(0.5f * estimate, error, estimate) : estimate;
}
DEVICE f64 inverse_sqrt_(f64 x) { return 1.0 / sqrt_(x); }

DEVICE bool is_nan(f32 x) { return x != x; }
DEVICE bool is_nan(f64 x) { return x != x; }
DEVICE bool is_inf(f32 x) { return (bits_of(x) & 0x7fffffffu) == 0x7f800000u; }
DEVICE bool is_inf(f64 x) { return x == x && x - x != x - x; }
DEVICE u64 bits_of_f64(f64 value) {
  u64 bits;
  copy_bytes(&bits, &value, 8);
  return bits;
}
DEVICE f64 f64_of_bits(u64 bits) {
  f64 value;
  copy_bytes(&value, &bits, 8);
  return value;
}
DEVICE bool is_signed(f64 x) { return bits_of_f64(x) >> 63 != 0; }
// As max.NaN and min.NaN of f32: +0 is above -0.
DEVICE f64 max_nan(f64 a, f64 b) { return is_nan(a) || a > b || (a == b && !is_signed(a)) ? a : b; }
DEVICE f64 min_nan(f64 a, f64 b) { return is_nan(a) || a < b || (a == b && is_signed(a)) ? a : b; }

// Division of many numbers by one, for quotients that end in a narrow type: what x / d gives, correctly
// rounded, where the quotient is 2^-30 or more; smaller ones are about right. d and x are scaled so that no
// step overflows that the quotient does not.
struct Divisor {
  f32 value, inverse, scale;
};
DEVICE Divisor divisor(f32 value) {
  const f32 size = fabs_(value);
  const f32 scale = size < 5.4210109e-20f           ? 18446744073709551616.f
                    : size > 18446744073709551616.f ? 5.4210109e-20f
                                                    : 1.f;
  const f32 scaled = value * scale;
  // By 0, infinity or NaN the first product is the quotient: the steps after it shall leave it alone.
  const bool plain = size > 0.f && size < inf_f32();
  return Divisor{plain ? scaled : 0.f, 1.f / scaled, scale};
}
DEVICE f32 divide(f32 x, const Divisor &by) {
  const f32 scaled = x * by.scale;
  const f32 first = scaled * by.inverse;
  // The remainder is exact, so that one correction by a correctly rounded inverse rounds correctly.
  const f32 second = fma_(fma_(-by.value, first, scaled), by.inverse, first);
  return fabs_(first) < 1e30f ? second : first;
}

// Activations, in f32.
DEVICE f32 sigmoid_(f32 x) { return 1.f / (1.f + exp_(-x)); }
DEVICE f32 silu_(f32 x) { return x / (1.f + exp_(-x)); }
DEVICE f32 gelu_erf_(f32 x) { return 0.5f * x * (1.f + erf_(x * 0.70710678118654752f)); }
DEVICE f32 gelu_tanh_(f32 x) {
  const f32 inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.f + tanh_(inner));
}
DEVICE f32 gelu_quick_(f32 x) { return x * sigmoid_(1.702f * x); }
// The same where the result is rounded to 16 bits or fewer: to about 1e-6 of it, in a third of the
// instructions.
DEVICE f32 sigmoid_near(f32 x) { return reciprocal_near(1.f + exp2_near(x * -1.44269504f)); }
DEVICE f32 silu_near(f32 x) { return x * sigmoid_near(x); }
// x * (1 + tanh(y)) / 2 = x * sigmoid(2 * y), y = x * (0.79788456 + 0.035677408 x^2); the factor to base 2 is
// in both.
DEVICE f32 gelu_tanh_near(f32 x) {
  const f32 y = x * fma_(x * x, -0.10294324f, -2.3022082f);
  return x * reciprocal_near(1.f + exp2_near(y));
}
DEVICE f32 gelu_quick_near(f32 x) { return x * sigmoid_near(1.702f * x); }
// x times the normal distribution's sigmoid, whose argument is odd in x; the polynomial was fitted for the
// least absolute error, 2e-7 of max(|x|, 1), about that of 1 + erf in f32.
DEVICE f32 gelu_erf_near(f32 x) {
  const f32 square = x * x;
  f32 y = fma_(square, -5.209914e-09f, 3.850452e-07f);
  y = fma_(y, square, -1.1452434e-05f);
  y = fma_(y, square, 1.5938944e-04f);
  y = fma_(y, square, 9.559285e-05f);
  y = fma_(y, square, -0.10483858f);
  y = fma_(y, square, -2.3022072f);
  return x * reciprocal_near(1.f + exp2_near(x * y));
}
DEVICE f32 softplus_(f32 x) { return max_nan(x, 0.f) + log1p_(exp_(-fabs_(x))); }

// The remainder of a division that rounds toward minus infinity: it has the sign of the divisor.
DEVICE f32 floor_mod_(f32 a, f32 b) {
  const f32 remainder = fmod_(a, b);
  return remainder != 0.f && ((remainder < 0.f) != (b < 0.f)) ? remainder + b : remainder;
}
DEVICE f64 floor_mod_(f64 a, f64 b) {
  const f64 remainder = fmod_(a, b);
  return remainder != 0.0 && ((remainder < 0.0) != (b < 0.0)) ? remainder + b : remainder;
}

// Integers of the graph: everything wraps, and division by zero gives 0.
template <class I> DEVICE bool is_minus_one(I a) { return (I)-1 < (I)0 && a == (I)-1; }
template <class I> DEVICE I int_div(I a, I b) {
  return b == 0 ? (I)0 : is_minus_one(b) ? (I)(0ull - (u64)a) : (I)(a / b);
}
template <class I> DEVICE I int_rem(I a, I b) { return b == 0 || is_minus_one(b) ? (I)0 : (I)(a % b); }
template <class I> DEVICE I int_mod(I a, I b) {
  const I remainder = int_rem(a, b);
  return remainder != 0 && ((remainder < 0) != (b < 0)) ? (I)(remainder + b) : remainder;
}
template <class I> DEVICE I int_pow(I base, I exponent) {
  if (exponent < 0)
    return base == 1 ? (I)1 : is_minus_one(base) ? (exponent % 2 != 0 ? (I)-1 : (I)1) : (I)0;
  u64 result = 1, power = (u64)base;
  for (u64 left = (u64)exponent; left != 0; left >>= 1) {
    if (left & 1u)
      result *= power;
    power *= power;
  }
  return (I)result;
}
// The place that an index of a gather names: negative ones count from the end, others out of range are
// clamped.
DEVICE i64 gather_index(i64 index, i64 count) {
  const i64 place = index < 0 ? index + count : index;
  return place < 0 ? 0 : place >= count ? count - 1 : place;
}
DEVICE i64 row_from_end(i64 row, i64 count) { return row < 0 ? row + count : row; }
/// The row from `first` on that lies a multiple of `count` rows from `row`.
DEVICE i64 row_behind(i64 row, i64 first, i64 count) {
  const i64 left = (row - first) % count;
  return first + (left < 0 ? left + count : left);
}

// Vectors of narrow floats, whole words at a time: two neighbours share a register.
template <class T, int N> DEVICE f32 element_f32(const Vec<T, N> &values, int index) {
  if constexpr (same_type<T, bf16> && N % 2 == 0) {
    u32 words[N / 2];
    copy_bytes(words, &values, 2 * N);
    const u32 word = words[index / 2];
    return f32_of_bits(index % 2 ? word & 0xffff0000u : word << 16);
  } else {
    return to_f32(values[index]);
  }
}
template <class T, int N> DEVICE Vec<T, N> vec_from_f32(const Vec<f32, N> &values) {
  Vec<T, N> narrow;
  if constexpr (float_pair<T>::converts && N % 2 == 0) {
    typename float_pair<T>::bits pairs[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      pairs[i] = float_pair<T>::from_f32(values[2 * i], values[2 * i + 1]);
    copy_bytes(&narrow, pairs, sizeof(T) * N);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i)
      narrow[i] = from_f32<T>(values[i]);
  }
  return narrow;
}
template <class T, int N> DEVICE Vec<T, N> exact_vec_from_f32(const Vec<f32, N> &values) {
  Vec<T, N> narrow;
#pragma unroll
  for (int i = 0; i < N; ++i)
    narrow[i] = exact_from_f32<T>(values[i]);
  return narrow;
}
// Two neighbours of a 16-bit type in a register, the first in the low half, as matrix products take them.
template <class T> DEVICE u32 packed_pair(f32 first, f32 second) {
  const Vec<T, 2> pair = vec_from_f32<T, 2>(Vec<f32, 2>{first, second});
  u32 bits;
  copy_bytes(&bits, &pair, 4);
  return bits;
}
