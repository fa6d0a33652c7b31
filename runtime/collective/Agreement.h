// Ranks make sure that they are about to run the same: one that did not would leave the others waiting inside
// a kernel.
#pragma once

#include "runtime/collective/Communicator.h"

#include <string>
#include <vector>

namespace fusion {

/// What must be the same on all ranks for the shapes that `symbols` stands for, a line for each thing:
/// inputs, kernels with their text's hash, launches with grid, sizes and algorithm, weights. No addresses,
/// paths or times, and nothing that follows from the rank's number. `communicator` says which ways
/// collectives take. Errors are those of planShapes().
Result<std::string> describeRun(const ProgramPlan &plan, const SymbolValues &symbols,
                                const std::vector<std::string> &versions = {},
                                const Communicator *communicator = nullptr);

/// Called by all ranks together, each with its text. Only hashes travel while they are the same. BadInput,
/// with the same words on all ranks, on a difference: two ranks' numbers and their first lines that differ.
Status agree(Rendezvous &host, const std::string &text);

} // namespace fusion
