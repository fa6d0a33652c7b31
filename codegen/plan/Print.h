// A plan for people: the kernels' source, a listing, a drawing.
#pragma once

#include "codegen/plan/ProgramPlan.h"

namespace fusion {

/// Comment lines that say what a kernel is and where it is launched.
std::string kernelComment(const ProgramPlan &plan, size_t kernel);
/// Every kernel's CUDA text, each below a comment that says where it is launched. Without the prelude.
std::string cudaSource(const ProgramPlan &plan);
/// Ports, buffers and launches in order, one a line.
std::string planText(const ProgramPlan &plan);
/// A Graphviz digraph: launches and ports, joined by the buffers between them.
std::string planDot(const ProgramPlan &plan);

} // namespace fusion
