// What a graph takes and gives, for people, and inputs for it out of nothing.
#pragma once

#include "api/Fusion.h"

namespace fusion {

/// Inputs and outputs, a line each: name, type, dims; then the symbols and what they were taken from.
std::string describePorts(const std::vector<Port> &inputs, const std::vector<Port> &outputs);

/// `dim:size,…` of --random-inputs.
Result<NamedTensors> randomInputsBy(const std::string &sizes, const std::vector<Port> &ports);

} // namespace fusion
