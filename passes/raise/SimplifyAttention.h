// nn.attention that the graph has, with what its operands say.
#pragma once

#include "passes/raise/AttentionMatch.h"

namespace fusion::raise {

/// Keys and values without the repetition of their heads, if all have it alike.
void dropRepeats(llvm::ArrayRef<mlir::Value *> keysAndValues, Raiser &raiser);

/// Pattern: attention(q, repeat(k), repeat(v), mask) -> attention(q, k, v, rest of the mask) {causal, window}
void simplifyAttention(nn::AttentionOp attention, Raiser &raiser);

} // namespace fusion::raise
