#pragma once
// Matrix products of a warpgroup.

#include "proxy.cuh"

#ifdef FUSION_EMULATED
#include "wgmma_host.cuh"
#else
#include "wgmma_cuda.cuh"
#endif
