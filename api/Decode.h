// The steps of a decode loop, for measuring them.
#pragma once

#include "api/Fusion.h"

namespace fusion {

struct DecodeTimes {
  /// Microseconds of each step: until all launches were queued, and until the results were there.
  std::vector<double> host, whole;
};

/// Runs `steps` more steps after the one with `inputs` and `outputs`, which become those of the last step.
/// Each step takes the caches of the step before. An input with a dim that grows with the caches, such as a
/// mask, is extended by repeating its last elements; all other inputs stay. Errors: a program without caches
/// (BadInput), and those of Program::run.
Result<DecodeTimes> decode(Program &program, NamedTensors &inputs, NamedTensors &outputs, int steps);

/// "64 steps: …", a line.
std::string describe(const DecodeTimes &times, const RunStatistics &statistics);

} // namespace fusion
