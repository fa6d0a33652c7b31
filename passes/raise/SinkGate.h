// Attention with a sink, spelled as a gate behind an attention without one.
#pragma once

#include "passes/raise/AttentionSinks.h"

namespace fusion::raise {

struct SinkGate {
  Sink sink;         ///< of the scores and probabilities of the softmax
  nn::MulOp product; ///< of what the attention without a sink gives, and the gate
};
/// Pattern: y * sigmoid(logsumexp(scores) - sink), which is the attention with a sink, since exp(scores) /
/// (sum(exp(scores)) + exp(sink)) is softmax(scores) times sum / (sum + exp(sink)). y is the product of
/// softmax(scores), which has rank 4, and values; logsumexp is log(sum(exp(scores - max))) + max along the
/// keys. Casts between floats and reshapes that drop or add the last dim may stand between. Nobody else reads
/// the scores or what is made of them: else they are computed in any case. The scores and the gate are
/// rounded at each step there, and not at all in the attention.
std::optional<SinkGate> matchSinkGate(nn::SoftmaxOp softmax, nn::MatmulOp y, ShapeTable &shapes);

} // namespace fusion::raise
