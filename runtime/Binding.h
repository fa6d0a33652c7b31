// From the tensors of one run to the values of the plan's symbols.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Safetensors.h"
#include "runtime/ShapeIndex.h"

#include <vector>

namespace fusion {

/// bindSymbols() for the plan's input ports and equalities: see there for the errors.
Result<SymbolValues> bindInputs(const ProgramPlan &plan, const NamedTensors &inputs);

/// The same for run after run, in a few microseconds for hundreds of inputs.
class InputBinder {
public:
  /// Both must outlive it.
  InputBinder(const ProgramPlan &plan, const ShapeIndex &index);
  /// Fills in a tensor for each input port and a value for each symbol by its number in `index`, unknown for
  /// those that no input has. Errors as those of bindInputs().
  Status bind(const NamedTensors &inputs, std::vector<const Tensor *> &tensors,
              std::vector<int64_t> &values) const;

private:
  struct Axis {
    size_t port, axis;
    ShapeIndex::Size expected;
  };
  bool match(const NamedTensors &inputs, std::vector<const Tensor *> &tensors) const;
  bool solve(std::span<const Tensor *const> tensors, std::vector<int64_t> &values) const;

  const ProgramPlan &plan;
  const ShapeIndex &index;
  std::vector<size_t> byName;                      ///< ports in the order of their names
  std::vector<std::pair<Axis, uint32_t>> solutions; ///< dims that are symbols, the first of each
  std::vector<Axis> checks;                        ///< all other dims
  bool isPlain = true;                             ///< the solutions are all there is to find
};

} // namespace fusion
