#include "gemm_sm100.cuh"

#include "gemm_maps.cuh"

TILES_PROGRAM(gemm_sm100, 320)
