// The kernels of a plan as source that others compile, and edited source in the place of theirs.
#pragma once

#include "api/Fusion.h"
#include "codegen/plan/ProgramPlan.h"

#include <span>

namespace fusion {

/// All kernels of the plan, each in a namespace of its own, after the device files that they include.
/// Compiles as it is, with nvcc or NVRTC.
std::string compilableSource(const ProgramPlan &plan);

/// NAME.cu for each kernel of the plan and beside them the device files, which they include. A file that is
/// there already and has other contents, as one that was edited, is an error, and nothing is written.
Status writeKernels(const ProgramPlan &plan, const std::string &folder);

/// Puts each file's text in the place of the kernel that it is for. Its device files are those in the same
/// folder, where there are any. The text is made to not compile unless the kernel has the parameters that the
/// plan passes. Errors (BadInput): a name that no kernel of the plan has, with those that are like it; a file
/// that cannot be read.
Status replaceKernels(ProgramPlan &plan, std::span<const KernelFile> files);

} // namespace fusion
