// Parts of a region that keep kernels of their own, beside one kernel of them all.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

/// A part of a region, where its values lie, and what its own schedule says of it. What refers to it must not
/// outlive it, nor may it move.
struct PlannedPart {
  const Region *region = nullptr;
  llvm::SmallVector<View> inputs, outputs;
  std::optional<SchedulePlan> plan; ///< none of a part without ops

  /// `context` of the whole, with the part's inputs and outputs.
  KernelContext contextIn(const KernelContext &context) const;
  /// Plans `part` of `whole`, whose inputs are those of `whole`, then values of parts before it. The reason
  /// why there is no plan, if there is none. A part without ops is done with.
  std::optional<std::string> make(const Region &part, const Region &whole, const Schedule &schedule,
                                  const KernelContext &context);
  /// One without launches where the part has no ops.
  std::vector<PlannedAlternative> alternatives() const;
};

/// Both predicates in one; nothing if there are no such sizes.
std::optional<Predicate> both(const Predicate &one, const Predicate &other);

/// Kernels of one part after those of another, for all sizes that both are for.
std::vector<PlannedAlternative> oneAfterTheOther(llvm::ArrayRef<PlannedAlternative> first,
                                                 llvm::ArrayRef<PlannedAlternative> second);

} // namespace fusion
