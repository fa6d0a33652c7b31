// What a Program holds: a reference function or an executor.
#pragma once

#include "runtime/Executor.h"
#include "runtime/api/Fusion.h"

#include <functional>

namespace fusion {

struct Program::Implementation {
  Report report;
  std::vector<Port> inputs, outputs;
  std::function<Result<NamedTensors>(const NamedTensors &)> reference; ///< on the CPU …
  std::unique_ptr<Executor> executor;                                  ///< … else
};

} // namespace fusion
