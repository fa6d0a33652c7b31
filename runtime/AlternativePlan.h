#pragma once

#include "codegen/plan/ProgramPlan.h"

namespace fusion {

/// An alternative of a step of `whole` as a plan of its own, to be measured: what its launches only read are
/// inputs, what they only write outputs.
ProgramPlan planOfAlternative(const ProgramPlan &whole, const Alternative &alternative);

} // namespace fusion
