#include "ir/base/DimTable.h"

#include "ir/base/DimNode.h"

#include <algorithm>

namespace fusion {

uint32_t DimTable::symbol(const std::string &name) {
  auto [found, isNew] = symbolNumbers.try_emplace(name, static_cast<uint32_t>(names.size()));
  if (isNew)
    names.push_back(name);
  return found->second;
}

uint32_t DimTable::add(const Dim &dim) {
  auto [found, isNew] = numbers.try_emplace(dim, static_cast<uint32_t>(dims.size()));
  if (!isNew)
    return found->second;
  Compiled compiled;
  deepest = std::max(deepest, compile(dim, compiled.code));
  stack.resize(deepest);
  for (const std::string &name : dim.symbols())
    compiled.symbols.push_back(symbol(name));
  std::sort(compiled.symbols.begin(), compiled.symbols.end());
  dims.push_back(std::move(compiled));
  return found->second;
}

size_t DimTable::compile(const Dim &dim, std::vector<Instruction> &code) {
  const std::vector<Dim::Node::Term> &terms = Dim::Node::termsOf(dim);
  if (terms.empty()) {
    code.push_back({Step::Constant, 0});
    return 1;
  }
  size_t most = 1;
  for (size_t i = 0; i < terms.size(); ++i) {
    const size_t below = (i > 0) + 1; // the sum so far and the coefficient
    most = std::max(most, below);
    code.push_back({Step::Constant, terms[i].coefficient});
    for (const Dim::Node::AtomRef &atom : terms[i].monomial) {
      if (atom->kind == Dim::Node::Kind::Symbol) {
        code.push_back({Step::Symbol, symbol(atom->name)});
        most = std::max(most, below + 1);
      } else {
        most = std::max(most, below + compile(atom->left, code));
        most = std::max(most, below + 1 + compile(atom->right, code));
        code.push_back({atom->kind == Dim::Node::Kind::FloorDiv ? Step::FloorDiv
                        : atom->kind == Dim::Node::Kind::Mod    ? Step::Mod
                        : atom->kind == Dim::Node::Kind::Max    ? Step::Max
                                                                : Step::Min});
      }
      code.push_back({Step::Multiply});
    }
    if (i > 0)
      code.push_back({Step::Add});
  }
  return most;
}

std::optional<int64_t> DimTable::evaluate(uint32_t dim, std::span<const int64_t> values) const {
  int64_t *top = stack.data(); // one past the last value
  for (const Instruction &instruction : dims[dim].code) {
    if (instruction.step == Step::Constant) {
      *top++ = instruction.operand;
      continue;
    }
    if (instruction.step == Step::Symbol) {
      *top = values[static_cast<size_t>(instruction.operand)];
      if (*top++ == unknown)
        return std::nullopt;
      continue;
    }
    const int64_t right = *--top;
    int64_t &left = top[-1];
    switch (instruction.step) {
    case Step::Add:
      if (__builtin_add_overflow(left, right, &left))
        return std::nullopt;
      break;
    case Step::Multiply:
      if (__builtin_mul_overflow(left, right, &left))
        return std::nullopt;
      break;
    case Step::Max:
      left = std::max(left, right);
      break;
    case Step::Min:
      left = std::min(left, right);
      break;
    default:
      if (right == 0)
        return std::nullopt;
      left = instruction.step == Step::FloorDiv ? floorDivide(left, right) : floorModulo(left, right);
      break;
    }
  }
  return top[-1];
}

} // namespace fusion
