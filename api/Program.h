// What a Program holds.
#pragma once

#include "api/Variants.h"

namespace fusion {

struct Program::Implementation {
  std::vector<Port> inputs, outputs; ///< of the whole graph
  std::unique_ptr<Variants> variants;
};

} // namespace fusion
