#pragma once
// Tiles of tensors by the tensor memory accelerator (TMA), from sm_90 on: one thread issues the load of a
// tile, the accelerator copies it between global and shared memory. A load reports its bytes to an mbarrier;
// stores belong to groups of the asking thread.
//
// Tiles in shared memory begin at multiples of 128 bytes; swizzled ones at multiples of 1024, of 512 with 64
// bytes, of 256 with 32. Coordinates count elements, innermost first, and may lie outside: what is outside of
// the tensor is read as its map says, and not written.
#include "proxy.cuh"

#ifdef FUSION_EMULATED
#include "tma_host.cuh"
#else
#include "tma_cuda.cuh"
#endif
