// What a Program holds: a reference function, an executor or several.
#pragma once

#include "runtime/Executor.h"
#include "runtime/RankGroup.h"
#include "runtime/RankProcess.h"
#include "runtime/api/Fusion.h"

#include <functional>

namespace fusion {

struct Program::Implementation {
  Report report;
  std::vector<Port> inputs, outputs;
  std::function<Result<NamedTensors>(const NamedTensors &)> reference; ///< on the CPU …
  std::unique_ptr<Executor> executor;                                  ///< … one rank's kernels …
  std::unique_ptr<RankGroup> group;                                    ///< … or those of several, of this process …
  std::unique_ptr<RankProcess> process;                                ///< … or each of a process
};

} // namespace fusion
