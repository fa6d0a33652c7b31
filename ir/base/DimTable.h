// Many dims over the same symbols, evaluated again and again: numbered, compiled, and indexed by what they
// depend on.
#pragma once

#include "ir/base/Dim.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fusion {

/// Not thread-safe.
class DimTable {
public:
  /// The value of a symbol that has none.
  static constexpr int64_t unknown = std::numeric_limits<int64_t>::min();

  /// The number of a symbol, which gets the next one when it comes first.
  uint32_t symbol(const std::string &name);
  const std::vector<std::string> &symbols() const { return names; }
  /// The number of a dim; equal ones share one.
  uint32_t add(const Dim &dim);
  size_t size() const { return dims.size(); }
  /// Ascending numbers.
  std::span<const uint32_t> symbolsOf(uint32_t dim) const { return dims[dim].symbols; }
  /// With a value for each symbol, by number. Nothing where Dim::evaluate() has an error to tell.
  std::optional<int64_t> evaluate(uint32_t dim, std::span<const int64_t> values) const;

private:
  enum class Step : uint8_t { Constant, Symbol, Add, Multiply, FloorDiv, Mod, Max, Min };
  struct Instruction {
    Step step;
    int64_t operand = 0; ///< the constant, or the symbol's number
  };
  struct Compiled {
    std::vector<Instruction> code; ///< postfix
    std::vector<uint32_t> symbols;
  };
  /// How many values are on the stack at most.
  size_t compile(const Dim &dim, std::vector<Instruction> &code);

  std::map<Dim, uint32_t> numbers;
  std::map<std::string, uint32_t, std::less<>> symbolNumbers;
  std::vector<std::string> names;
  std::vector<Compiled> dims;
  size_t deepest = 1;
  mutable std::vector<int64_t> stack;
};

} // namespace fusion
