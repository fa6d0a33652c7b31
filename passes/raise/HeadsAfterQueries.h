// Scores [batch, queries, heads, keys] of one head of keys, as einsum('bshc,btc->bsht') has them.
#pragma once

#include "passes/raise/MaskMatch.h"

namespace fusion::raise {

/// Dim 1 of `query`, read as [batch, heads, queries, d], is that of the queries: only a run knows its size,
/// or masks depend on it and not on dim 2. `key` has the one head.
bool hasHeadsAfterQueries(mlir::Value query, mlir::Value key, llvm::ArrayRef<MaskTerm> terms,
                          ShapeTable &shapes);

/// [batch, heads, queries, d] as [batch, queries, heads, d] and back.
mlir::Value withHeadsSwapped(mlir::Value x, Raiser &raiser);
/// The masks laid over scores whose heads and queries are swapped.
void swapHeadsOfMasks(llvm::MutableArrayRef<MaskTerm> terms, Raiser &raiser);

} // namespace fusion::raise
