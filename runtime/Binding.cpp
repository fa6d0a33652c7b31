#include "runtime/Binding.h"

#include "ir/base/BindSymbols.h"

#include <algorithm>
#include <numeric>

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

InputBinder::InputBinder(const ProgramPlan &plan, const ShapeIndex &index)
    : plan(plan), index(index), byName(plan.inputs.size()) {
  std::iota(byName.begin(), byName.end(), size_t(0));
  std::sort(byName.begin(), byName.end(),
            [&](size_t a, size_t b) { return plan.inputs[a].name < plan.inputs[b].name; });
  using Size = ShapeIndex::Size;
  std::vector<bool> solved(index.table.symbols().size(), false);
  for (size_t port = 0; port < index.inputs.size(); ++port)
    for (size_t axis = 0; axis < index.inputs[port].shape.size(); ++axis) {
      const Size &size = index.inputs[port].shape[axis];
      auto symbols =
          size.number == Size::isConstant ? std::span<const uint32_t>() : index.table.symbolsOf(size.number);
      if (symbols.size() == 1 && !solved[symbols[0]] &&
          *size.dim == Dim::symbol(index.table.symbols()[symbols[0]])) {
        solved[symbols[0]] = true;
        solutions.push_back({{port, axis, size}, symbols[0]});
      } else {
        checks.push_back({port, axis, size});
      }
    }
  auto isKnown = [&](const Size &size) {
    if (size.number != Size::isConstant)
      for (uint32_t symbol : index.table.symbolsOf(size.number))
        isPlain = isPlain && solved[symbol];
  };
  for (const Axis &check : checks)
    isKnown(check.expected);
  for (const auto &[left, right] : index.equalities) {
    isKnown(left);
    isKnown(right);
  }
}

bool InputBinder::match(const NamedTensors &inputs, std::vector<const Tensor *> &tensors) const {
  if (inputs.size() != byName.size())
    return false;
  auto input = inputs.begin();
  for (size_t number : byName) {
    const PortPlan &port = plan.inputs[number];
    const auto &[name, tensor] = *input++;
    if (name != port.name || tensor.type() != port.type || tensor.shape().size() != port.shape.size())
      return false;
    tensors[number] = &tensor;
  }
  return true;
}

bool InputBinder::solve(std::span<const Tensor *const> tensors, std::vector<int64_t> &values) const {
  for (const auto &[place, symbol] : solutions)
    values[symbol] = tensors[place.port]->shape()[place.axis];
  auto value = [&](const ShapeIndex::Size &size) -> std::optional<int64_t> {
    return size.number == ShapeIndex::Size::isConstant ? size.constant
                                                       : index.table.evaluate(size.number, values);
  };
  return std::all_of(checks.begin(), checks.end(),
                     [&](const Axis &check) {
                       return value(check.expected) == tensors[check.port]->shape()[check.axis];
                     }) &&
         std::all_of(index.equalities.begin(), index.equalities.end(), [&](const auto &equality) {
           std::optional<int64_t> left = value(equality.first);
           return left && left == value(equality.second);
         });
}

Status InputBinder::bind(const NamedTensors &inputs, std::vector<const Tensor *> &tensors,
                         std::vector<int64_t> &values) const {
  tensors.assign(plan.inputs.size(), nullptr);
  values.assign(index.table.symbols().size(), DimTable::unknown);
  const bool matches = match(inputs, tensors);
  if (isPlain && matches && solve(tensors, values))
    return {};
  // What solves harder dims, and has the words for what is wrong.
  Result<SymbolValues> found = bindInputs(plan, inputs);
  if (!found)
    return found.error();
  for (size_t symbol = 0; symbol < values.size(); ++symbol) {
    auto value = found->find(index.table.symbols()[symbol]);
    values[symbol] = value == found->end() ? DimTable::unknown : value->second;
  }
  for (size_t port = 0; port < tensors.size(); ++port)
    tensors[port] = &inputs.find(plan.inputs[port].name)->second;
  return {};
}

} // namespace fusion
