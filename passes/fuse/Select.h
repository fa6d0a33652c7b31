// Which candidates are taken.
#pragma once

#include "passes/fuse/CandidatePool.h"
#include "passes/fuse/Propose.h"

namespace fusion {

struct Selection {
  llvm::SmallVector<size_t> chosen;        ///< disjoint, numbers in the pool
  std::vector<Proposals::Miss> restMisses; ///< of the family `rest` where nothing else is taken
};

/// Chooses from the pool, to which candidates of `rest`, a family that takes what others leave, are added;
/// null: none are.
Selection selectCandidates(CandidatePool &pool, const ProposalContext &context, const Proposer *rest,
                           llvm::function_ref<void(const Candidate &)> see);

} // namespace fusion
