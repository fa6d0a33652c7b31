// How a group takes in the ops next to it. Every larger group is a candidate of its own beside the smaller
// one: legality, schedule, score and choice are the same for all.
#pragma once

#include "passes/fuse/Propose.h"

#include "llvm/ADT/SetVector.h"

namespace fusion {

using OpSet = llvm::SmallSetVector<mlir::Operation *, 16>;

/// The scalar ops that follow a value, one after the other, each the only reader of the one before: bias,
/// activation, residual, cast, quantisation, in any order.
class ScalarTail {
public:
  /// `value` stays outside. `wholeRows`: a dynamic quantisation may end it.
  ScalarTail(const Traffic &traffic, mlir::Value value, bool wholeRows)
      : traffic(traffic), value(value), wholeRows(wholeRows) {}
  /// Adds the next op to `ops`, after the ops of side branches that only it reads. False at the end; reason()
  /// says why.
  bool next(OpSet &ops);
  const std::string &reason() const { return why; }

private:
  mlir::Operation *nextStep();
  void takeSideBranch(mlir::Operation *step, OpSet &ops) const;

  const Traffic &traffic;
  mlir::Value value; ///< null after a dynamic quantisation
  bool wholeRows;
  std::string why;
};

/// What computes an operand of the add `sum`: an add or a norm of the same rows that has no other reader.
/// Null if nothing like it does.
mlir::Operation *producerBefore(mlir::Value operand, mlir::Operation *sum, const Traffic &traffic);

/// Larger groups around those of `found`. A user's pattern grows by every step: adds and norms before its
/// adds, the residual add before its norms, norms around its rotations, other norms of the same value, scalar
/// ops after it. Of the built-in families, those whose larger forms have no name of their own grow: add_norm,
/// norm_quant and add_norm_quant, by what stands before their adds and by other norms; add_norm also by
/// scalar ops after it.
std::vector<Candidate> growGroups(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

/// Norms by the value that they normalise, where there are several that one kernel can compute.
llvm::SmallVector<std::pair<mlir::Value, llvm::SmallVector<mlir::Operation *>>>
siblingNorms(mlir::Block &block, size_t atMost);
/// Norms of one value that one kernel computes: beyond it they run out of registers.
inline constexpr size_t mostSiblings = 4;

} // namespace fusion
