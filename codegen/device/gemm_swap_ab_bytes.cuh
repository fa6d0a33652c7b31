#pragma once
// gemm_swap_ab of bytes: f8, or 8-bit integers.

#include "gemm_swap_ab.cuh"
#include "wgmma_bytes.cuh"
