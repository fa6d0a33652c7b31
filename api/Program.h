// What a Program holds.
#pragma once

#include "api/ExecutionBackend.h"

namespace fusion {

struct Program::Implementation {
  Report report;
  std::vector<Port> inputs, outputs; ///< of the whole graph
  std::unique_ptr<ExecutionBackend> backend;
};

} // namespace fusion
