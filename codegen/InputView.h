// A value of a region that is a view of one of its inputs.
#pragma once

#include "codegen/Schedule.h"

#include <optional>
#include <utility>

namespace fusion {

/// The number of the input and how `value` lies in its buffer, if nothing but reshapes, transposes, slices
/// and expansions inside the region are between the two.
std::optional<std::pair<unsigned, View>> inputView(const Region &region, const KernelContext &context,
                                                   mlir::Value value);

} // namespace fusion
