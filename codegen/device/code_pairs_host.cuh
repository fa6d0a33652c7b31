#pragma once

#include "math.cuh"

// What code_pairs_cuda.cuh has instructions for, emulated. Products of bf16 or f16 are exact in f32, and so
// are the sums that are needed.
#define FUSION_PAIR_FMA(T)                                                                                   \
  DEVICE u32 T##_pair_fma(u32 a, u32 b, u32 c) {                                                             \
    const f32 low = fma_(f32_of_##T((u16)a), f32_of_##T((u16)b), f32_of_##T((u16)c));                        \
    const f32 high =                                                                                         \
        fma_(f32_of_##T((u16)(a >> 16)), f32_of_##T((u16)(b >> 16)), f32_of_##T((u16)(c >> 16)));            \
    return (u32)T##_of_f32(low) | (u32)T##_of_f32(high) << 16;                                               \
  }
FUSION_PAIR_FMA(f16)
FUSION_PAIR_FMA(bf16)
#undef FUSION_PAIR_FMA
template <class Code>
DEVICE u32 f16_pair_of(u32 codes) {
  const u32 low = f16_of_f32(to_f32(Code{(u8)codes})), high = f16_of_f32(to_f32(Code{(u8)(codes >> 8)}));
  return low | high << 16;
}
