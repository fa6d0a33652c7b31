#pragma once

#include "wgmma_cuda.cuh"

// Matrix products of bytes: the numbers of the operands after the accumulators are those of wgmma_cuda.cuh.
template <class A, class B, int N> struct wgmma_byte_instruction;
#define FUSION_WGMMA_BYTES(A, B, S, names, last, N, a0, a1, a2)                                              \
  template <> struct wgmma_byte_instruction<A, B, N> {                                                       \
    static DEVICE void shared(S (&d)[N / 8][4], u64 a, u64 b, bool add) {                                    \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #a2 ", 0; wgmma.mma_async.sync.aligned.m64n" #N         \
                   "k32." names " {" FUSION_NAMES_##N "}, %" #a0 ", %" #a1 ", p" last ";}"                   \
                   : FUSION_OPERANDS_##N(d)                                                                  \
                   : "l"(a), "l"(b), "r"((u32)add));                                                         \
    }                                                                                                        \
  };
#define FUSION_WIDTHS(EACH) \
  EACH(8, 4, 5, 6) \
  EACH(16, 8, 9, 10) \
  EACH(32, 16, 17, 18) \
  EACH(48, 24, 25, 26) \
  EACH(64, 32, 33, 34) \
  EACH(80, 40, 41, 42) \
  EACH(96, 48, 49, 50) \
  EACH(112, 56, 57, 58) \
  EACH(128, 64, 65, 66) \
  EACH(144, 72, 73, 74) \
  EACH(160, 80, 81, 82) \
  EACH(176, 88, 89, 90) \
  EACH(192, 96, 97, 98) \
  EACH(208, 104, 105, 106) \
  EACH(224, 112, 113, 114) \
  EACH(240, 120, 121, 122) \
  EACH(256, 128, 129, 130)
#define FUSION_FRAGMENT(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define FUSION_E4M3_E4M3(...) FUSION_WGMMA_BYTES(f8e4m3, f8e4m3, f32, "f32.e4m3.e4m3", ", 1, 1", __VA_ARGS__)
#define FUSION_E4M3_E5M2(...) FUSION_WGMMA_BYTES(f8e4m3, f8e5m2, f32, "f32.e4m3.e5m2", ", 1, 1", __VA_ARGS__)
#define FUSION_E5M2_E4M3(...) FUSION_WGMMA_BYTES(f8e5m2, f8e4m3, f32, "f32.e5m2.e4m3", ", 1, 1", __VA_ARGS__)
#define FUSION_E5M2_E5M2(...) FUSION_WGMMA_BYTES(f8e5m2, f8e5m2, f32, "f32.e5m2.e5m2", ", 1, 1", __VA_ARGS__)
FUSION_WIDTHS(FUSION_E4M3_E4M3)
FUSION_WIDTHS(FUSION_E4M3_E5M2)
FUSION_WIDTHS(FUSION_E5M2_E4M3)
FUSION_WIDTHS(FUSION_E5M2_E5M2)
#undef FUSION_FRAGMENT
#define FUSION_FRAGMENT(d) "+r"((d)[0]), "+r"((d)[1]), "+r"((d)[2]), "+r"((d)[3])
#define FUSION_S8_S8(...) FUSION_WGMMA_BYTES(i8, i8, i32, "s32.s8.s8", "", __VA_ARGS__)
#define FUSION_S8_U8(...) FUSION_WGMMA_BYTES(i8, u8, i32, "s32.s8.u8", "", __VA_ARGS__)
#define FUSION_U8_S8(...) FUSION_WGMMA_BYTES(u8, i8, i32, "s32.u8.s8", "", __VA_ARGS__)
#define FUSION_U8_U8(...) FUSION_WGMMA_BYTES(u8, u8, i32, "s32.u8.u8", "", __VA_ARGS__)
FUSION_WIDTHS(FUSION_S8_S8)
FUSION_WIDTHS(FUSION_S8_U8)
FUSION_WIDTHS(FUSION_U8_S8)
FUSION_WIDTHS(FUSION_U8_U8)
#undef FUSION_FRAGMENT
#undef FUSION_WIDTHS
#undef FUSION_WGMMA_BYTES

// d (+)= A B^T of 32 columns of both, bytes, whose tiles have these descriptors: rows of 128 bytes.
template <class A, class B, class Sum, int Fragments>
DEVICE void wgmma_byte_rows(Sum (&d)[Fragments][4], u64 a, u64 b, bool add) {
  wgmma_byte_instruction<A, B, 8 * Fragments>::shared(d, a, b, add);
}
