// What the fusion report says of the kernels of a plan.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "passes/fuse/FusionReport.h"

namespace fusion {

/// Every launch of every alternative, in order, with the node of the report's graph after fusion that it
/// computes.
llvm::json::Array launchesOf(const ProgramPlan &plan, const FusionReport &report);

/// Every kernel with its CUDA source.
llvm::json::Array kernelSourcesOf(const ProgramPlan &plan);

} // namespace fusion
