// A part of verify(): see BufferPlan::ownersRows.
#pragma once

#include "codegen/plan/ProgramPlan.h"

namespace fusion {

/// Indices are in range.
Status verifyOwners(const ProgramPlan &plan);

} // namespace fusion
