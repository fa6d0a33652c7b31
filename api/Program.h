// What a Program holds.
#pragma once

#include "api/ExecutionBackend.h"
#include "api/IndexLimits.h"

namespace fusion {

struct Program::Implementation {
  Report report;
  std::vector<Port> inputs, outputs; ///< of the whole graph
  std::vector<IndexLimit> indexLimits; ///< none of a bundle, nor of a graph that came as shards
  std::vector<PortShape> indexPorts;   ///< `inputs`, for the sizes of those limits
  std::unique_ptr<ExecutionBackend> backend;
};

} // namespace fusion
