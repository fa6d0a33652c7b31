// What the fusion report says of the kernels of a plan.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "passes/fuse/FusionReport.h"

namespace fusion {

/// Writes every launch of every alternative, in order, with the node of the report's graph after fusion that
/// it computes.
void writeLaunches(llvm::json::OStream &out, const ProgramPlan &plan, const FusionReport &report);

/// Writes every kernel with its CUDA source.
void writeKernelSources(llvm::json::OStream &out, const ProgramPlan &plan);

} // namespace fusion
