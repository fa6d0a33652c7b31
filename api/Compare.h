// Outputs of a run against those that were expected.
#pragma once

#include "api/Fusion.h"

#include <optional>

namespace fusion {

struct Tolerance {
  std::optional<double> relative; ///< L2; default by type: f32 1e-5, f16 2e-3, bf16 1.5e-2, f8 7e-2 (e4m3) or 1.5e-1 (e5m2), else 0
  std::optional<double> absolute; ///< an output whose largest absolute error is at most this passes too
};

struct Comparison {
  std::string text; ///< a line an output, in the order of the ports
  bool pass = true;
};

/// Outputs that `expected` does not name are said to be so, and pass.
Comparison compareOutputs(const std::vector<Port> &ports, const NamedTensors &outputs, const NamedTensors &expected,
                          const Tolerance &tolerance = {});

} // namespace fusion
