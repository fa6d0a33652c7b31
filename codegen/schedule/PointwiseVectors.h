// Arithmetic element by element over values that lie in memory as whole vectors: a thread takes one vector of
// each.
#pragma once

#include "codegen/Schedule.h"

#include <optional>

namespace fusion {

/// The kernel of a region of scalar ops and quantisations with one scale whose inputs, broadcast to the
/// output, are contiguous along their last dims (or constant there); nothing if it is not such a region.
std::optional<KernelDraft> vectorKernel(const Region &region, const KernelContext &context);

} // namespace fusion
