// Attention with a sink: a softmax over the scores and one more number of each head, whose share goes to no
// value.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

struct Sink {
  mlir::Value scores, sink;  ///< [batch, heads, queries, keys] and [1 or batch, heads, 1, 1]
  mlir::Value probabilities; ///< of the scores alone
};
/// x of sub(x, max(x)) over the last dim, which changes no softmax; else the value itself.
mlir::Value withoutLargest(mlir::Value value);

/// Pattern: slice(softmax(concat(scores, sink))) along the keys, which takes the shares of the scores; in
/// either order, and with the largest subtracted before the softmax or not. Casts between floats may stand
/// anywhere.
std::optional<Sink> matchSink(nn::SoftmaxOp softmax, ShapeTable &shapes);

/// Operands of an nn.attention, in which nobody's window leaves out the sink.
struct SinkOperands {
  mlir::Value keys, values, mask;
};
/// A key and a value of zeros in front of the others, whose score the sink is: see matchAttentionSink().
/// `window`: of keys that a query looks at, 0 for all; it becomes part of the mask, which may be null.
SinkOperands putSinkInFront(const Sink &sink, SinkOperands operands, int64_t window, mlir::Location location,
                            Raiser &raiser);

/// A sink as [1 or batch, heads, 1, 1].
Sink withRank4(Sink sink, Raiser &raiser);

} // namespace fusion::raise
