#pragma once

#include "codegen/plan/ProgramPlan.h"

namespace fusion {

/// Sizes at which to measure what runs like the one at `sizes` shall do: those, but for caches that the run
/// extends in place, which in most runs hold more positions than in the first: half of their capacity, 1024
/// at most. As given where no cache holds positions yet (prompts), where the new ones would not fit beside,
/// or where other sizes would contradict the plan's equalities.
SymbolValues typicalSizes(const ProgramPlan &plan, const SymbolValues &sizes);

} // namespace fusion
