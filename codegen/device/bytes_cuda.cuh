#pragma once

#include "math.cuh"

// Four bytes at a time, as CUDA for sm_80 and later.

// Byte i of the result is byte `selector >> 4 i & 7` of the eight bytes of low and high.
DEVICE u32 permute_bytes(u32 low, u32 high, u32 selector) { return __byte_perm(low, high, selector); }

// The low byte, and the high one.
DEVICE void f32_pair_of_e4m3(f32 &low, f32 &high, u16 codes) {
#if HAS_F8_CONVERSIONS
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
  low = f32_of_f16((u16)pair);
  high = f32_of_f16((u16)(pair >> 16));
#else
  low = f32_of_e4m3((u8)codes);
  high = f32_of_e4m3((u8)(codes >> 8));
#endif
}

// Matrix fragments of bytes, in the layouts of PTX's mma.m16n8k32.
#define FUSION_MMA_BYTES(A, B, LEFT, RIGHT, T, C, D)                                                         \
  DEVICE void mma_m16n8k32(T(&d)[4], const u32(&a)[4], const u32(&b)[2], A, B) {                             \
    asm volatile("mma.sync.aligned.m16n8k32.row.col." #D "." #LEFT "." #RIGHT "." #D " "                     \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
                 : "+" #C(d[0]), "+" #C(d[1]), "+" #C(d[2]), "+" #C(d[3])                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                        \
  }
FUSION_MMA_BYTES(i8, i8, s8, s8, i32, r, s32)
FUSION_MMA_BYTES(u8, u8, u8, u8, i32, r, s32)
FUSION_MMA_BYTES(u8, i8, u8, s8, i32, r, s32)
FUSION_MMA_BYTES(i8, u8, s8, u8, i32, r, s32)
#if HAS_F8_MMA
FUSION_MMA_BYTES(f8e4m3, f8e4m3, e4m3, e4m3, f32, f, f32)
FUSION_MMA_BYTES(f8e5m2, f8e5m2, e5m2, e5m2, f32, f, f32)
FUSION_MMA_BYTES(f8e4m3, f8e5m2, e4m3, e5m2, f32, f, f32)
FUSION_MMA_BYTES(f8e5m2, f8e4m3, e5m2, e4m3, f32, f, f32)
#else
// Bytes 2 half and 2 half + 1 as f16, which holds every f8 value.
template <class T> DEVICE u32 f16_pair(u32 codes, int half) {
  const u16 low = f16_of_f32(to_f32(T{(u8)(codes >> (16 * half))}));
  const u16 high = f16_of_f32(to_f32(T{(u8)(codes >> (16 * half + 8))}));
  return (u32)low | (u32)high << 16;
}
// As two products of f16. Both operands take the k of a lane in the same order, which is all that a sum asks
// for.
template <class A, class B>
DEVICE void mma_m16n8k32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], A, B) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const u32 left[4] = {f16_pair<A>(a[2 * half], 0), f16_pair<A>(a[2 * half + 1], 0),
                         f16_pair<A>(a[2 * half], 1), f16_pair<A>(a[2 * half + 1], 1)};
    const u32 right[2] = {f16_pair<B>(b[half], 0), f16_pair<B>(b[half], 1)};
    mma_m16n8k16(d, left, right, f16());
  }
}
#endif
#undef FUSION_MMA_BYTES
