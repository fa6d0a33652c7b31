#include "runtime/Binding.h"

#include "ir/base/BindSymbols.h"

namespace fusion {

Result<SymbolValues> bindInputs(const ProgramPlan &plan, const NamedTensors &inputs) {
  std::vector<PortShape> ports;
  for (const PortPlan &port : plan.inputs)
    ports.push_back({port.name, port.type, port.shape});
  std::vector<DimEquality> equalities;
  for (const ProgramPlan::Equality &equality : plan.equalities)
    equalities.push_back({equality.left, equality.right, equality.reason});
  return bindSymbols(ports, inputs, equalities);
}

} // namespace fusion
