#pragma once

// The vocabulary of emitted kernels, the same on the device and in emulation. No header is included: the
// text is handed to a run-time compiler that has none.

#if defined(__CUDACC__)
#define DEVICE __device__ __forceinline__
#define copy_bytes memcpy
#else
#define DEVICE inline __attribute__((always_inline, unused))
#define copy_bytes __builtin_memcpy
#endif

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

// Narrow floats hold bits only: arithmetic happens in f32, between to_f32 and from_f32.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8e4m3 { // no infinity, largest 448
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};

// N neighbouring elements that travel in one access. Aligned to its size, to 16 when it is larger.
template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vec {
  static_assert(N > 0 && (N & (N - 1)) == 0, "a power of two");
  T at[N];
  DEVICE T &operator[](int index) { return at[index]; }
  DEVICE const T &operator[](int index) const { return at[index]; }
};

template <class A, class B> constexpr bool same_type = false;
template <class A> constexpr bool same_type<A, A> = true;
template <class T>
constexpr bool is_narrow_float =
    same_type<T, f16> || same_type<T, bf16> || same_type<T, f8e4m3> || same_type<T, f8e5m2>;
// Two neighbours from two f32 by one instruction, where the machine has it: see vec_from_f32.
template <class T> struct float_pair {
  static constexpr bool converts = false;
};
template <class T> constexpr bool is_wide_float = same_type<T, f32> || same_type<T, f64>;

DEVICE u32 bits_of(f32 value) {
  u32 bits;
  copy_bytes(&bits, &value, 4);
  return bits;
}
DEVICE f32 f32_of_bits(u32 bits) {
  f32 value;
  copy_bytes(&value, &bits, 4);
  return value;
}
DEVICE f32 nan_f32() { return f32_of_bits(0x7fc00000u); }
DEVICE f32 inf_f32() { return f32_of_bits(0x7f800000u); }
