// Matmuls behind the norm of their rows as one kernel, where the matmul in front of the norm has summed up
// the squares of these rows (KernelContext::sumsSquares).
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

/// A norm, and where its operands lie.
struct NormOfRows {
  nn::RmsNormOp op;
  View rows, weight;
};
/// Of a region with nothing but a norm.
std::optional<NormOfRows> normOfRows(const Region &region, const KernelContext &context);

class NormedMatmul {
public:
  /// Of a region that begins with the norm; or, if `before` is given, of one whose first operand is that
  /// norm's result and nothing else is. Nothing where no kernel does that.
  static std::optional<NormedMatmul> of(const Region &region, const KernelContext &context,
                                        const std::optional<NormOfRows> &before);

  /// Its operands: the rows before the norm, and its weight, are the last inputs.
  const Region &operands() const { return region; }
  llvm::ArrayRef<View> views() const { return inputs; }
  const View &rows() const { return inputs[inputs.size() - 2]; }
  /// The kernel, for the sizes and with the inputs of the context; one that does not send (KernelDraft) where
  /// the sizes are not for it.
  KernelDraft emit(const KernelContext &context) const;

private:
  Region region; ///< without the norm
  llvm::SmallVector<View> inputs;
  nn::RmsNormOp norm;
};

} // namespace fusion
