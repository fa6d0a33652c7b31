// Outputs of a run against those that were expected.
#pragma once

#include "api/Fusion.h"

#include <optional>

namespace fusion {

struct Tolerance {
  /// L2; default by type: f32 1e-5, f16 2e-3, bf16 1.5e-2, f8 7e-2 (e4m3) or 1.5e-1 (e5m2), else 0. That is
  /// for two layers; roundings add up as a random walk does, so that it grows with the square root of
  /// `layers`.
  std::optional<double> relative;
  std::optional<double> absolute; ///< an output whose largest absolute error is at most this passes too
  size_t layers = 0;
  /// What the outputs would be without roundings. One that it names passes if it is as near to it as what was
  /// expected is, with half as much again; where nothing was expected, by `relative`.
  const NamedTensors *exact = nullptr;
};

struct Comparison {
  std::string text; ///< a line an output, in the order of the ports
  bool pass = true;
};

/// Outputs that nobody names are counted, and pass; those that are not in `outputs` are of these. An integer
/// or boolean fails where a float was expected, and the other way around.
Comparison compareOutputs(const std::vector<Port> &ports, const NamedTensors &outputs,
                          const NamedTensors &expected, const Tolerance &tolerance = {});

} // namespace fusion
