#pragma once
// Clusters of blocks.

#ifdef FUSION_EMULATED
#include "clusters_host.cuh"
#else
#include "clusters_cuda.cuh"
#endif
