// The steps of a decode loop, for measuring them.
#pragma once

#include "api/Fusion.h"

namespace fusion {

struct DecodeTimes {
  std::vector<double> host,
      whole; ///< microseconds of each step: until all was queued, and until the results were there
};

/// Runs `steps` more steps after the one with `inputs` and `outputs`, which become those of the last: its
/// caches are what the step before left; an input with a dim that grows with them, such as a mask, is made
/// longer by repeating its last elements; all others stay. Errors: a program without caches (BadInput), and
/// those of Program::run.
Result<DecodeTimes> decode(Program &program, NamedTensors &inputs, NamedTensors &outputs, int steps);

/// "64 steps: …", a line.
std::string describe(const DecodeTimes &times, const RunStatistics &statistics);

} // namespace fusion
