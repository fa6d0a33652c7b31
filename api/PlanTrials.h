// The sizes at which a check compares the kernels of a plan.
#pragma once

#include "api/Trial.h"
#include "codegen/plan/ProgramPlan.h"

#include <string>
#include <vector>

namespace fusion {

/// More elements in the inputs would keep the reference and the emulation busy for minutes.
constexpr double mostTrialElements = 1 << 23;
/// In all inputs, at these sizes.
double elementsOf(llvm::ArrayRef<PortShape> ports, const TrialSizes &sizes);

struct PlanTrials {
  std::vector<TrialSizes> sizes;    ///< together they reach the kernels of every predicate but for `skipped`
  TrialSizes alike; ///< all the same, so that what the plan takes for equal is, if they can be
  std::vector<std::string> skipped; ///< " when n >= 4096, which would take 20 GFLOP"
};
/// The usual sizes, and some for each kernel that they leave out; without the usual ones only for kernels of
/// many rows.
PlanTrials planTrials(const ProgramPlan &plan, llvm::ArrayRef<PortShape> ports, bool usual);

} // namespace fusion
