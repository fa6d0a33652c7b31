#pragma once

#include "math.cuh"

// Four bytes at a time, emulated.

// Byte i of the result is byte `selector >> 4 i & 7` of the eight bytes of low and high.
DEVICE u32 permute_bytes(u32 low, u32 high, u32 selector) {
  const u64 all = (u64)high << 32 | low;
  u32 result = 0;
  for (u32 i = 0; i < 4u; ++i)
    result |= (u32)(all >> (8u * (selector >> (4u * i) & 7u)) & 0xffu) << (8u * i);
  return result;
}

// The low byte, and the high one.
DEVICE void f32_pair_of_e4m3(f32 &low, f32 &high, u16 codes) {
  low = f32_of_e4m3((u8)codes);
  high = f32_of_e4m3((u8)(codes >> 8));
}

template <class D> struct byte_matrix_lane {
  D d[4];
  u32 a[4], b[2];
};
template <class T> DEVICE f32 byte_factor(u8 code, f32) { return to_f32(T{code}); }
template <class T> DEVICE u32 byte_factor(u8 code, u32) { return (u32)(i32)(T)code; }
// D[16][8] += A[16][32] B[32][8], with lane l holding of A rows l/4 (+8), columns 4(l%4)..+3 (+16); of B rows
// 4(l%4)..+3 (+16), column l/4; of D rows l/4 (+8), columns 2(l%4) (+1). Integers wrap.
template <class D, class A, class B> void multiply_byte_matrices(u8 *slots) {
  D a[16][32], b[32][8], d[16][8];
  for (u32 lane = 0; lane < 32u; ++lane) {
    byte_matrix_lane<D> part;
    copy_bytes(&part, slots + lane * fusion_emulation::slotBytes, sizeof(part));
    const u32 group = lane / 4u, first = 4u * (lane % 4u), pair = 2u * (lane % 4u);
    for (u32 i = 0; i < 4u; ++i) {
      for (u32 byte = 0; byte < 4u; ++byte)
        a[group + 8u * (i % 2u)][first + byte + 16u * (i / 2u)] =
            byte_factor<A>((u8)(part.a[i] >> (8u * byte)), D());
      d[group + 8u * (i / 2u)][pair + i % 2u] = part.d[i];
    }
    for (u32 i = 0; i < 2u; ++i)
      for (u32 byte = 0; byte < 4u; ++byte)
        b[first + byte + 16u * i][group] = byte_factor<B>((u8)(part.b[i] >> (8u * byte)), D());
  }
  for (u32 row = 0; row < 16u; ++row)
    for (u32 k = 0; k < 32u; ++k)
      for (u32 column = 0; column < 8u; ++column)
        d[row][column] += a[row][k] * b[k][column];
  for (u32 lane = 0; lane < 32u; ++lane) {
    const u32 group = lane / 4u, pair = 2u * (lane % 4u);
    const D mine[4] = {d[group][pair], d[group][pair + 1u], d[group + 8u][pair], d[group + 8u][pair + 1u]};
    copy_bytes(slots + lane * fusion_emulation::slotBytes, mine, sizeof(mine));
  }
}
template <class D, class A, class B>
DEVICE void multiply_byte_fragments(D (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  byte_matrix_lane<D> mine;
  copy_bytes(mine.d, d, sizeof(mine.d));
  copy_bytes(mine.a, a, sizeof(mine.a));
  copy_bytes(mine.b, b, sizeof(mine.b));
  const u8 *slots = warp_operation(fusion_emulation::WarpOperation::MultiplyMatrix, &mine, sizeof(mine),
                                   multiply_byte_matrices<D, A, B>);
  copy_bytes(d, slots + lane_id() * fusion_emulation::slotBytes, sizeof(d));
}
template <class A, class B>
DEVICE void mma_m16n8k32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], A, B) {
  multiply_byte_fragments<f32, A, B>(d, a, b);
}
template <class A, class B>
DEVICE void mma_m16n8k32(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], A, B) {
  u32 sums[4] = {(u32)d[0], (u32)d[1], (u32)d[2], (u32)d[3]};
  multiply_byte_fragments<u32, A, B>(sums, a, b);
  for (u32 i = 0; i < 4u; ++i)
    d[i] = (i32)sums[i];
}
