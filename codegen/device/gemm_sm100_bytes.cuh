#pragma once
// gemm_sm100 of bytes: f8, or 8-bit integers.

#include "bytes.cuh"
#include "gemm_sm100.cuh"
