// A plan for people: the kernels' source, a listing, a drawing.
#pragma once

#include "codegen/plan/ProgramPlan.h"

namespace fusion {

/// `f16 [batch, 64]`
std::string typedText(DType type, const DimShape &shape);
/// `add_norm: nn.add + nn.rms_norm`
std::string launchTitle(const KernelLaunch &launch);
/// Comment lines that say what a kernel is and where it is launched.
std::string kernelComment(const ProgramPlan &plan, size_t kernel);
/// ` as one-shot when batch*seq in 2 … 4`: the sizes that an alternative is for; empty: all.
std::string conditionText(const Alternative &alternative);
/// Every kernel's CUDA text, each below a comment that says where it is launched. Without the prelude.
std::string cudaSource(const ProgramPlan &plan);
/// Ports, buffers and launches in order, one a line.
std::string planText(const ProgramPlan &plan);
/// A Graphviz digraph: launches and ports, joined by the buffers between them, in a cluster for each layer.
/// Layers that are alike are drawn once.
std::string planDot(const ProgramPlan &plan);

} // namespace fusion
