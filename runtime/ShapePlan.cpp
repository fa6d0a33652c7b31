#include "runtime/ShapePlan.h"

namespace fusion {

ShapePlanner::ShapePlanner(const ProgramPlan &plan)
    : program(plan), index(plan), values(index.table.size()), knownSince(index.table.size(), 0) {}

SymbolValues ShapePlanner::named(std::span<const int64_t> symbols) const {
  SymbolValues result;
  for (size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i] != DimTable::unknown)
      result[index.table.symbols()[i]] = symbols[i];
  return result;
}

void ShapePlanner::begin(std::span<const int64_t> symbols) {
  symbolValues.assign(symbols.begin(), symbols.end());
  ++turn;
}

std::optional<int64_t> ShapePlanner::value(const Size &size) {
  if (size.number == Size::isConstant)
    return size.constant;
  if (knownSince[size.number] == turn)
    return values[size.number];
  std::optional<int64_t> value = index.table.evaluate(size.number, symbolValues);
  ++evaluated;
  if (value) {
    values[size.number] = *value;
    knownSince[size.number] = turn;
  }
  return value;
}

ShapePlanner::Traffic ShapePlanner::traffic(const ShapePlan &shapes, size_t launch) {
  begin(shapes.symbols);
  const ShapeIndex::Launch &sizes = index.launches[shapes.launches[launch].source];
  auto count = [&](const Size &size) { return static_cast<double>(value(size).value_or(0)); };
  return {count(sizes.bytesRead) + count(sizes.bytesWritten), count(sizes.flops)};
}

} // namespace fusion
