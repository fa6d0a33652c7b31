// Matches a fusion pattern against the graph without changing it.
#pragma once

#include "patterns/PatternSet.h"

namespace fusion {

struct MatchResult {
  bool matched = false;
  /// On a match: the ops that the pattern groups, without repeats, in the pattern's order. Otherwise: those
  /// that were found, in no order.
  llvm::SmallVector<mlir::Operation *> ops;
  /// Otherwise: how many of the pattern's ops were found, and why it ended: the first structural mismatch, or
  /// every guard that failed.
  unsigned opsFound = 0;
  std::string reason;
};

/// Interprets `pattern` as a tree match from `root`, an op at which it may start. The operands of commutative
/// ops are tried in both orders. Returns all matches, or else the one nearest miss.
llvm::SmallVector<MatchResult> matchAll(const FusionPattern &pattern, mlir::Operation *root);
/// The first match, or the nearest miss.
MatchResult match(const FusionPattern &pattern, mlir::Operation *root);

} // namespace fusion
