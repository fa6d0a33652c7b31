// What a Report holds.
#pragma once

#include "api/Fusion.h"
#include "passes/fuse/FusionReport.h"
#include "codegen/plan/ProgramPlan.h"

namespace fusion {

struct Report::Contents {
  std::string json;
  FusionReport report; ///< with the drawings' nodes, unless it was read from `json`
};

/// `plan`, where there is one, says which kernels compute what.
Report makeReport(FusionReport report, const ProgramPlan *plan = nullptr);

} // namespace fusion
