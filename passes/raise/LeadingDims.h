// Attention with more dims ahead of the heads than the batch, such as blocks of a picture: all are the batch.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// [.., heads, s, d] with one dim ahead of the heads.
mlir::Value withOneLeadingDim(mlir::Value x, Raiser &raiser);
/// A mask over scores with these dims ahead of the heads, laid over those with one. Dims of its own that are
/// 1 are repeated, unless all are.
mlir::Value maskWithOneLeadingDim(mlir::Value mask, llvm::ArrayRef<Dim> leading, Raiser &raiser);

} // namespace fusion::raise
