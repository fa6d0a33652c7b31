#pragma once

#include "math.cuh"

// a * b + c of both halves of a register, each rounded once.
DEVICE u32 f16_pair_fma(u32 a, u32 b, u32 c) {
  u32 result;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
DEVICE u32 bf16_pair_fma(u32 a, u32 b, u32 c) {
  u32 result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
// Two f8 in the lower half of a register as two f16, exactly.
template <class Code> DEVICE u32 f16_pair_of(u32 codes) {
  u32 pair;
  if constexpr (same_type<Code, f8e4m3>)
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)codes));
  else
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"((u16)codes));
  return pair;
}
