// Attention with a sink: a score of each head that takes its share of every row's weights and adds no value.
#pragma once

#include "ir/dialect/Dialect.h"

namespace fusion::nn {

struct AttentionSink {
  mlir::Value keys, values; ///< without what stands for the sink
  mlir::Value mask;         ///< of these keys: i1 or a float that is added; null: there is none
  mlir::Value sink;         ///< f32, broadcasts against [batch, heads, 1, 1]
  /// What makes the operands of the attention of these, in block order.
  llvm::SmallVector<mlir::Operation *> ops;
};

/// Pattern: attention(q, pad(keys), pad(values), m) with a key and a value of zeros in front of the others,
/// and m = s, where(pad(mask, true), s, -inf) or s + pad(mask, 0), where s = concat(sink, 0, 0, …). A window
/// is said by the mask, since the sink is in all of them; a causal attention has the sink in front where rows
/// without keys are 0.
std::optional<AttentionSink> matchAttentionSink(AttentionOp attention);

} // namespace fusion::nn
