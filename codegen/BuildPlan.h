// Function → ProgramPlan: every op becomes a view or a kernel launch.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

struct PlanOptions {
  std::string target = "sm_90a"; ///< one that TargetInfo::find knows
  std::string baseFolder; ///< where relative weight paths are looked up
  /// What the device that the plan is for says of itself; where it is not present, the target's row.
  std::optional<TargetInfo> device = {};
  ScheduleSet schedules = {}; ///< which are asked
  bool batchInvariant = false; ///< KernelContext::batchInvariant
};

/// The device, or else the row of the target.
Result<TargetInfo> targetOf(const PlanOptions &options);

/// An unknown target is an error that names the known ones. A group or op that no schedule takes is an error
/// that names it and every schedule's reason.
Result<ProgramPlan> buildPlan(mlir::func::FuncOp function, const PlanOptions &options);

} // namespace fusion
