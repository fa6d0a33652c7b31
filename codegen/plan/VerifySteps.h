// Parts of verify(ProgramPlan). Internal.
#pragma once

#include "codegen/plan/ProgramPlan.h"

namespace fusion {

/// What Step promises. Arguments are verified already.
Status verifySteps(const ProgramPlan &plan);

/// All steps that read or write a scattered buffer choose by the same sizes among the same algorithms, so
/// that all take the same algorithm.
Status verifyScattering(const ProgramPlan &plan);

} // namespace fusion
