// From the tensors of one run to the values of the plan's symbols.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Safetensors.h"

namespace fusion {

/// bindSymbols() for the plan's input ports and equalities: see there for the errors.
Result<SymbolValues> bindInputs(const ProgramPlan &plan, const NamedTensors &inputs);

} // namespace fusion
