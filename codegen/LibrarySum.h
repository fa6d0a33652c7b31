// A region that sums over ranks, as a call of the communication library and the region of the ops after it.
#pragma once

#include "codegen/RemainingOps.h"

namespace fusion {

struct LibrarySum {
  nn::AllReduceOp sum;
  View addend;                    ///< where what each rank adds lies; not contiguous: it is copied first
  std::optional<unsigned> output; ///< of the region, which the library writes as it is
  std::optional<RemainingOps> remaining;       ///< none if no op is after it
};

/// The reason why it cannot be done so: the addend is computed in the region, or no schedule takes the rest.
std::variant<LibrarySum, std::string> splitSum(const Region &region, const KernelContext &context);

} // namespace fusion
