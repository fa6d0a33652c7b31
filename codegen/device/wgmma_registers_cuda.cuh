#pragma once

#include "wgmma_cuda.cuh"

// The numbers of the operands after the accumulators are those of wgmma_cuda.cuh.
template <class T, int N> struct wgmma_registers_instruction;
#define FUSION_FRAGMENT(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define FUSION_WGMMA(T, N, a0, a1, a2, a3, a4)                                                               \
  template <> struct wgmma_registers_instruction<T, N> {                                                     \
    static DEVICE void rows(f32 (&d)[N / 8][4], const u32 (&a)[4], u64 b) {                                  \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" FUSION_NAMES_##N         \
                   "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #a4 ", 1, 1, 1, 0;"                      \
                   : FUSION_OPERANDS_##N(d)                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                    \
    }                                                                                                        \
  };
#define FUSION_WGMMA_TYPES(...) FUSION_WGMMA(f16, __VA_ARGS__) FUSION_WGMMA(bf16, __VA_ARGS__)
FUSION_WGMMA_TYPES(8, 4, 5, 6, 7, 8)
FUSION_WGMMA_TYPES(16, 8, 9, 10, 11, 12)
FUSION_WGMMA_TYPES(32, 16, 17, 18, 19, 20)
FUSION_WGMMA_TYPES(64, 32, 33, 34, 35, 36)
FUSION_WGMMA_TYPES(128, 64, 65, 66, 67, 68)
#undef FUSION_WGMMA_TYPES
#undef FUSION_WGMMA
#undef FUSION_FRAGMENT

// d += A B^T of 16 columns of both: A in registers, in the layout of mma.m16n8k16, B a tile in rows. The
// registers of A may be written again when the product has ended.
template <class T, int Fragments>
DEVICE void wgmma_registers(f32 (&d)[Fragments][4], const u32 (&a)[4], u64 b) {
  wgmma_registers_instruction<T, 8 * Fragments>::rows(d, a, b);
}
