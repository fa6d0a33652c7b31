// Compares the outputs of a run with expected ones.
#pragma once

#include "api/Fusion.h"

#include <optional>

namespace fusion {

struct Tolerance {
  /// Of the relative L2 error. The default is by type: f32 1e-5, f16 2e-3, bf16 1.5e-2, f8 7e-2 (e4m3) or
  /// 1.5e-1 (e5m2), else 0. That is for two layers; it grows with the square root of `layers`, since
  /// roundings add up as a random walk does.
  std::optional<double> relative;
  std::optional<double> absolute; ///< an output whose largest absolute error is at most this passes too
  size_t layers = 0;
  /// The outputs without roundings, where they are known. Such an output passes if its error against them is
  /// at most 1.5 times that of the expected output; without an expected output, `relative` is the limit.
  const NamedTensors *exact = nullptr;
};

struct Comparison {
  std::string text; ///< a line an output, in the order of the ports
  bool pass = true;
};

/// Outputs for which nothing is expected are counted, and pass; only these may be missing in `outputs`. An
/// integer or boolean fails where a float was expected, and the other way around.
Comparison compareOutputs(const std::vector<Port> &ports, const NamedTensors &outputs,
                          const NamedTensors &expected, const Tolerance &tolerance = {});

} // namespace fusion
