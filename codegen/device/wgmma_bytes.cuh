#pragma once
// Matrix products of bytes of a warpgroup: 8-bit integers, exact in i32, or f8. Of an f8 product the tensor
// cores keep some 14 bits of each sum, of which the smaller ones are cut off.

#include "proxy.cuh"

#ifdef FUSION_EMULATED
#include "wgmma_bytes_host.cuh"
#else
#include "wgmma_bytes_cuda.cuh"
#endif
