#pragma once
// Everything that kernels share: what a kernel without includes of its own gets.

#include "clusters.cuh"
#include "fragments.cuh"
#include "reduce.cuh"
#include "vectors.cuh"
