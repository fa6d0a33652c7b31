// Inputs for a graph of which one has none.
#pragma once

#include "api/Fusion.h"

#include <map>

namespace fusion {

/// Tensors for `ports`, the same in every run: floats of mixed signs around 1, integers from 0 to 3, so that
/// they can be token ids; inputs called masks are ones, those called positions count up. `sizes` gives
/// symbols their values; of the others, those named like a batch are 1 and the rest 16. Errors (BadInput): a
/// symbol that no port has, a dim that comes out negative.
Result<NamedTensors> randomInputs(const std::vector<Port> &ports,
                                  const std::map<std::string, int64_t> &sizes);

} // namespace fusion
