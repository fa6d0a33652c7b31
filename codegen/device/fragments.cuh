#pragma once

#include "bytes.cuh"

// Matrix products of vectors as they lie in memory. A sum over k may take k in any order, if both operands
// do: of 8 neighbours along k, 16 bytes, a lane makes the registers of two products m16n8k16.

// 16 rows, of which the lane holds vectors of rows l / 4 and l / 4 + 8, times 8 columns, of which it holds
// one of column l / 4. The four lanes of a row hold neighbouring vectors.
template <class T>
DEVICE void mma_vectors(f32 (&d)[4], const Vec<u32, 4> &low, const Vec<u32, 4> &high,
                        const Vec<u32, 4> &right, T) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 a[4] = {low[i], high[i], low[i + 1], high[i + 1]}, b[2] = {right[i], right[i + 1]};
    mma_m16n8k16(d, a, b, T());
  }
}

// Elements of 16 bits: lines[k][0][i] holds columns 2 i and 2 i + 1 at that k. Each column's 8 neighbours
// along k.
template <int N>
DEVICE void transpose_lines(Vec<u32, 4> &even, Vec<u32, 4> &odd, const Vec<u32, N> (&lines)[8][1], int i) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    even[k / 2] = permute_bytes(lines[k][0][i], lines[k + 1][0][i], 0x5410u);
    odd[k / 2] = permute_bytes(lines[k][0][i], lines[k + 1][0][i], 0x7632u);
  }
}

// Elements of 32 bits or less as words; of half a byte: those from an even one on.
template <class T> DEVICE const u32 *words_at(const T *from) { return reinterpret_cast<const u32 *>(from); }
template <class T> DEVICE const u32 *words_at(packed<T> from) {
  return reinterpret_cast<const u32 *>(from.bytes + (from.at >> 1));
}
// Element `index` of some of 8 or 4 bits.
template <class T, int Bits, int N> DEVICE T quantised_at(const Vec<u32, N> &words, int index) {
  const u32 code = words[index / (32 / Bits)] >> (index % (32 / Bits) * Bits);
  if constexpr (Bits == 4) {
    return half_byte<T>(code & 15u);
  } else {
    const u8 byte = (u8)code;
    T element;
    copy_bytes(&element, &byte, 1);
    return element;
  }
}
