// A region that sums over ranks, as a call of the communication library and the region of what is behind it.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

struct LibrarySum {
  nn::AllReduceOp sum;
  View addend;                              ///< where what each rank adds lies; not contiguous: it is copied first
  std::optional<unsigned> output;           ///< of the region, which the library writes as it is
  Region rest;                              ///< has the sum among its inputs; without ops if nothing is behind it
  llvm::SmallVector<View> inputs, outputs;  ///< of the rest
  llvm::SmallVector<unsigned> restOutputs;  ///< which outputs of the region those are
  const Schedule *schedule = nullptr;       ///< that takes the rest
};

/// The reason why it cannot be done so: the addend is computed in the region, or no schedule takes the rest.
std::variant<LibrarySum, std::string> splitSum(const Region &region, const KernelContext &context);

} // namespace fusion
