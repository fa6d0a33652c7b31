// Parts of verify(ProgramPlan). Internal.
#pragma once

#include "codegen/plan/ProgramPlan.h"

namespace fusion {

/// Grids, shared memory, offsets, views and buffers are within bounds, as far as their sizes are constants.
/// Indices are verified already.
Status verifySizes(const ProgramPlan &plan);

/// What Step promises. Arguments are verified already.
Status verifySteps(const ProgramPlan &plan);

/// All steps that read or write a scattered buffer choose by the same sizes among the same algorithms, so
/// that all take the same algorithm.
Status verifyScattering(const ProgramPlan &plan);

} // namespace fusion
