#pragma once

#ifdef FUSION_EMULATED
#include "bytes_host.cuh"
#else
#include "bytes_cuda.cuh"
#endif

// Bytes in words, the same on the device and in emulation.

// Turns a square of 4 x 4 bytes: byte i of word j becomes byte j of word i.
DEVICE void transpose_bytes(u32 (&words)[4]) {
  const u32 low01 = permute_bytes(words[0], words[1], 0x5140u),
            low23 = permute_bytes(words[2], words[3], 0x5140u);
  const u32 high01 = permute_bytes(words[0], words[1], 0x7362u),
            high23 = permute_bytes(words[2], words[3], 0x7362u);
  words[0] = permute_bytes(low01, low23, 0x5410u);
  words[1] = permute_bytes(low01, low23, 0x7632u);
  words[2] = permute_bytes(high01, high23, 0x5410u);
  words[3] = permute_bytes(high01, high23, 0x7632u);
}

// The four bytes of a word as what their type T says they are.
template <class T> DEVICE void decode_bytes(f32 (&values)[4], u32 word) {
  if constexpr (same_type<T, i8>) {
    // In the last byte of 2^23 a byte counts units; the sign bit turned over, it is the code + 128.
    const u32 bytes = word ^ 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] = f32_of_bits(permute_bytes(bytes, 0x4b000000u, 0x7540u | (u32)i)) - 8388736.f;
  } else if constexpr (same_type<T, f8e4m3>) {
    f32_pair_of_e4m3(values[0], values[1], (u16)word);
    f32_pair_of_e4m3(values[2], values[3], (u16)(word >> 16));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] = to_f32(T{(u8)(word >> (8 * i))});
  }
}

// Elements of 4 bits, two to a byte, low half first. Used like a pointer to elements, which are read as
// bytes.
template <class T> struct packed {
  const u8 *bytes;
  i64 at;
  packed() = default;
  DEVICE explicit packed(const T *first) : bytes(reinterpret_cast<const u8 *>(first)), at(0) {}
  DEVICE packed operator+(i64 elements) const {
    packed moved = *this;
    moved.at += elements;
    return moved;
  }
};
template <class T> DEVICE T half_byte(u32 half) {
  return same_type<T, i8> ? (T)((i32)(half ^ 8u) - 8) : (T)half;
}
template <class T> DEVICE T load(packed<T> from) {
  return half_byte<T>((u32)load(from.bytes + (from.at >> 1)) >> (from.at & 1) * 4 & 15u);
}
template <class T> DEVICE T load_early(packed<T> from) {
  return half_byte<T>((u32)load_early(from.bytes + (from.at >> 1)) >> (from.at & 1) * 4 & 15u);
}
template <class T, int N> DEVICE Vec<T, N> half_bytes(const Vec<u8, N / 2> &pairs) {
  Vec<T, N> values;
#pragma unroll
  for (int i = 0; i < N; ++i)
    values[i] = half_byte<T>((u32)pairs[i / 2] >> (i % 2 * 4) & 15u);
  return values;
}
template <class T, int N> DEVICE Vec<T, N> load_vec(packed<T> from) {
  if constexpr (N == 1)
    return Vec<T, N>{{load(from)}};
  else
    return half_bytes<T, N>(load_vec<u8, N / 2>(from.bytes + (from.at >> 1)));
}
template <class T, int N> DEVICE Vec<T, N> load_early_vec(packed<T> from) {
  return half_bytes<T, N>(load_early_vec<u8, N / 2>(from.bytes + (from.at >> 1)));
}
