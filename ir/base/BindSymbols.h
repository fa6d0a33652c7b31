// From the tensors of one run to the values of the symbols, with every check that a wrong input can fail.
#pragma once

#include "ir/base/Dim.h"
#include "ir/base/Safetensors.h"

#include <span>
#include <string>
#include <string_view>

namespace fusion {

/// What an input must be.
struct PortShape {
  std::string name;
  DType type = DType::F32;
  DimShape shape;
};

/// The symbol that no input has: the number of the rank that runs one part of a graph divided among several.
inline constexpr std::string_view rankSymbol = "tp_rank";

/// Two dims that must have one value.
struct DimEquality {
  Dim left, right;
  std::string reason; ///< starts the error message: location and op
};

/// Matches `inputs` by name with `ports` and solves their dims for the symbols: plain symbols first, then
/// expressions that are linear in one unknown, such as `s15 + 1`. Then every dim and every equality is
/// verified. Errors are one line: a missing or unknown name, a wrong type or rank, a dim that contradicts
/// another input (both named), a violated equality with its reason.
Result<SymbolValues> bindSymbols(std::span<const PortShape> ports, const NamedTensors &inputs,
                                 std::span<const DimEquality> equalities = {});

} // namespace fusion
