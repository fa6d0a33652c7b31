// What gemm_swap_codes and gemm_small_m_codes share: kernels of quantised weights that are decoded to 16
// bits.
#pragma once

#include "codegen/schedule/MatmulProblem.h"

namespace fusion::matmul {

/// Of a code.
int64_t codeBits(const Operand &operand);
/// Of a scale or zero point in memory.
int64_t entryBits(const ScaleOrZero &entry);
/// Codes of a step of `depth` that share a scale; 0: all of K do.
int64_t scaleDepth(const Problem &problem, int64_t depth);
/// Whether scales have the type that codes are decoded to.
bool scaleFits(const Problem &problem);
/// Whether codes, scales and zero points can be read before pdl_wait().
bool readsCodesEarly(const Problem &problem, const KernelContext &context);

} // namespace fusion::matmul
