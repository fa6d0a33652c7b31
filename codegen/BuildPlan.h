// Function → ProgramPlan: every op becomes a view or a kernel launch.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

struct PlanOptions {
  std::string target = "sm_90a";
  std::string baseFolder; ///< where relative weight paths are looked up
};

/// A group or op that no schedule takes is an error that names it and every schedule's reason.
Result<ProgramPlan> buildPlan(mlir::func::FuncOp function, const PlanOptions &options);

} // namespace fusion
