#pragma once
// Matrix products of a warpgroup whose A is in registers and whose B lies along k.

#include "proxy.cuh"

#ifdef FUSION_EMULATED
#include "wgmma_registers_host.cuh"
#else
#include "wgmma_registers_cuda.cuh"
#endif
