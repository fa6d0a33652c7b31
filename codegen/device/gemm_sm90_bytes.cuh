#pragma once
// gemm_sm90 of bytes: f8, or 8-bit integers.

#include "gemm_sm90.cuh"
#include "wgmma_bytes.cuh"
