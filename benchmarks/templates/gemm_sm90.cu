#include "gemm_sm90.cuh"

#include "gemm_maps.cuh"

TILES_PROGRAM(gemm_sm90, 384)
