#pragma once
// Maps of matrices in bf16 whose 64 x 64 tiles gemm_swap_ab reads.

#include "tma.cuh"

#include <cstdlib>
#include <cstring>
#include <cuda.h>

/// Of `lines` of `length` elements, in boxes of `box` lines of 64.
inline TensorMap map_of(const bf16 *matrix, i64 lines, i64 length, unsigned box) {
  const cuuint64_t shape[] = {cuuint64_t(length), cuuint64_t(lines)}, stride[] = {cuuint64_t(2 * length)};
  const cuuint32_t extent[] = {64, box}, steps[] = {1, 1};
  alignas(64) CUtensorMap map;
  if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16 *>(matrix), shape,
                             stride, extent, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    std::exit(1);
  TensorMap copy;
  std::memcpy(&copy, &map, sizeof copy);
  return copy;
}
