#pragma once
// The machine a kernel runs on: indices, memory, warps, copies, matrix fragments and the functions of its
// arithmetic.

#ifdef FUSION_EMULATED
#include "machine_host.cuh"
#else
#include "machine_cuda.cuh"
#endif
