#pragma once

#include "ir/base/Dim.h"

#include <optional>
#include <string>

namespace fusion {

/// The symbol that is all of the dim, as `n` is, but not `n + 1`.
inline std::optional<std::string> soleSymbol(const Dim &dim) {
  const std::set<std::string> symbols = dim.symbols();
  const bool isAll = symbols.size() == 1 && dim == Dim::symbol(*symbols.begin());
  return isAll ? std::optional(*symbols.begin()) : std::nullopt;
}

} // namespace fusion
