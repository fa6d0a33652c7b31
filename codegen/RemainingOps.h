// What is left of a region when a library computes some of its values.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

struct RemainingOps {
  Region region;                           ///< has the library's values that it reads among its inputs
  llvm::SmallVector<View> inputs, outputs; ///< of it
  llvm::SmallVector<unsigned> results;     ///< which outputs of the whole region its outputs are
  const Schedule *schedule = nullptr;      ///< that takes it
};

/// The ops of `region` after `made`, which a library writes side by side and without gaps, that its outputs
/// `results` need; without ops where those are only copied. The reason if no schedule takes them.
std::variant<RemainingOps, std::string> remainingOpsOf(const Region &region, const KernelContext &context,
                                       llvm::ArrayRef<mlir::Value> made, llvm::ArrayRef<unsigned> results);

} // namespace fusion
