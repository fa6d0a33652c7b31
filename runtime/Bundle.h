// A compiled program in one folder: plan.json, kernels/N.cubin, weights.bin. Opened without MLIR.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "runtime/CompileKernels.h"

#include <span>
#include <string>
#include <vector>

namespace fusion {

struct Bundle {
  ProgramPlan plan;                ///< its weights lie in the bundle
  std::vector<std::string> cubins; ///< one for each kernel
  std::string arch;                ///< what the cubins are compiled for
};

/// Writes to a temporary folder beside `folder` and renames it there. Replaces an older bundle; any other
/// existing folder that is not empty, or a file, is an error and stays as it is.
Status writeBundle(const std::string &folder, const ProgramPlan &plan, const std::string &arch,
                   std::span<const CompiledKernel> kernels);
/// Errors name the missing or damaged file. Digests find damage, not malice: who can write a bundle writes
/// the code of its kernels. Its plan reads no file outside of the folder.
Result<Bundle> readBundle(const std::string &folder);
/// True if `path` is a folder that looks like a bundle.
bool isBundle(const std::string &path);

} // namespace fusion
