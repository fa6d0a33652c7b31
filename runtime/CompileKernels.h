// From kernel plans to cubins, in parallel and through the cache.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "codegen/target/TargetInfo.h"
#include "runtime/KernelCache.h"
#include "runtime/cuda/Nvrtc.h"

#include <span>
#include <string>
#include <vector>

namespace fusion {

struct CompiledKernel : Cubin {
  bool fromCache = false;
};

/// One cubin for each of `kernels` (empty for a library call), for `target`; sources that differ in comments
/// only are compiled once. Kernels with the same includes may be compiled together: their cubins are then the
/// same module. Reads what it can from `cache` (may be null) and stores the rest there. Shows progress when
/// something is compiled. NVRTC itself is needed even when every kernel is in the cache: its version is part
/// of the key. Errors: no NVRTC (Environment); a kernel that needs what the target lacks or does not compile,
/// by name.
Result<std::vector<CompiledKernel>> compileKernels(std::span<const KernelPlan> kernels,
                                                   const TargetInfo &target, KernelCache *cache);
/// The same for a name that TargetInfo::find knows; others are refused.
Result<std::vector<CompiledKernel>> compileKernels(std::span<const KernelPlan> kernels,
                                                   const std::string &target, KernelCache *cache);

/// What NVRTC sees of a kernel that is compiled by itself: it and the device files that it includes.
std::string fullSource(const KernelPlan &kernel);

/// One program of several kernels with the same includes. Each is in a namespace, since they name their parts
/// alike; their entry points have C names, which must differ.
std::string programOf(const std::vector<std::string> &includes, std::span<const std::string> kernels);

} // namespace fusion
