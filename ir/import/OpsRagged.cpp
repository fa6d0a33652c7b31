// Tokens of sequences of different length: their indices, and the causal convolution over them.
#include "ir/import/OpsRagged.h"

#include "ir/import/Graph.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

Value rowsOf(NodeImporter &n, Value x, Value indices) {
  return n.build<nn::GatherOp>({x, indices}, n.i64("axis", 0));
}

Value number(NodeImporter &n, const Dim &value) { return n.dimConstant(value, {}, n.i64Type()); }

} // namespace

RaggedTokens::RaggedTokens(NodeImporter &node, unsigned cumulative, Dim sequences, Dim tokens)
    : n(node), sequences(sequences), tokens(tokens) {
  if (n.failed())
    return;
  n.owner().learn(n.shape(cumulative)[0], sequences + 1);
  const Value all = n.cast(n.operand(cumulative), n.i64Type()), numbers = countFrom(n, 0, tokens);
  const Value ends = n.slice(all, 0, 1, sequences);
  begins = n.slice(all, 0, 0, sequences);
  lengths = n.sub(ends, begins);
  const Value isBehind = n.build<nn::GreaterEqualOp>({n.reshape(numbers, {tokens, 1}), ends});
  const Value found = n.reduce(n.cast(isBehind, n.i64Type()), "sum", {1}, /*keepdims=*/false);
  sequence = n.build<nn::MinOp>({found, number(n, sequences - 1)}); // of tokens behind the last, too
  place = n.sub(numbers, rowsOf(n, begins, sequence));
}

Value RaggedTokens::padded(Value x) const {
  const Value places = countFrom(n, 0, tokens);
  const Value index = n.add(n.reshape(begins, {sequences, 1}), places);
  return rowsOf(n, x, n.build<nn::MinOp>({index, number(n, tokens - 1)}));
}

Value RaggedTokens::packed(Value x) const {
  if (n.failed())
    return {};
  DimShape shape = n.shapeOf(x);
  shape.erase(shape.begin());
  shape[0] = sequences * tokens;
  return rowsOf(n, n.reshape(x, shape), n.add(n.mul(sequence, number(n, tokens)), place));
}

Value RaggedTokens::isToken() const {
  return n.build<nn::LessOp>({countFrom(n, 0, tokens), n.reshape(lengths, {sequences, 1})});
}

// Pattern: rows = [the state of all sequences; all tokens]; y = sum over taps of rows[tap's index] * weight
void varlenCausalConvolution(NodeImporter &n) {
  enum : unsigned {
    xInput,
    weightInput,
    lengthsInput,
    biasInput,
    stateInput,
    captureInput,
    deltaInput,
    maskInput
  };
  const std::string activation = n.stringAttribute("activation", "none");
  const int64_t dilation = n.intAttribute("dilation", 1);
  if (activation != "none" && activation != "silu" && activation != "swish")
    return n.fail("activation '" + activation + "' is none of none, silu and swish");
  if (n.intAttribute("state_update_capacity", 0) != 0 || n.has(captureInput) || n.wants(2))
    return n.fail("state_update_capacity is not supported: only the state behind the last token is kept");
  if (n.has(deltaInput) || n.has(maskInput))
    return n.fail("kernel_delta and previous_mask (inputs 6 and 7) are not supported");
  n.ignore({"group_size", "delta_offset"}); // of these inputs
  if (!n.has(stateInput))
    return n.fail("needs initial_state (input 4)");
  if (n.failed())
    return;
  const DimShape weight = n.shape(weightInput), state = n.shape(stateInput);
  if (n.rank(xInput) != 2 || weight.size() != 3 || state.size() != 3 || !weight[2].isStatic() || dilation < 1)
    return n.fail("needs x of rank 2, weights and initial_state of rank 3, and a known size of the kernel");
  const int64_t taps = weight[2].value(), history = (taps - 1) * dilation;
  const Dim tokens = n.owner().resolve(n.shape(xInput)[0]), sequences = n.owner().resolve(state[0]),
            channels = n.owner().resolve(weight[0]);
  n.owner().learn(n.shape(xInput)[1], channels);
  n.owner().learn(state[1], channels);
  n.owner().learn(state[2], Dim(history));
  const Type f32 = n.f32Type(), type = n.inputType(xInput);
  const Value past =
      n.reshape(n.transpose(n.operand(stateInput), {0, 2, 1}), {sequences * history, channels});
  const Value rows = n.concat({past, n.operand(xInput)}, 0);
  const RaggedTokens ragged(n, lengthsInput, sequences, tokens);
  const Value zero = n.scalar(n.i64Type(), 0), size = n.scalar(n.i64Type(), history);
  const Value own = countFrom(n, sequences * history, tokens);
  const Value before = n.add(n.mul(ragged.sequence, size), n.add(ragged.place, size));
  const Value weights = n.reshape(n.cast(n.operand(weightInput), f32), {channels, Dim(taps)});
  Value sum;
  for (int64_t tap = 0; tap < taps && !n.failed(); ++tap) {
    const Value back = n.scalar(n.i64Type(), static_cast<double>((taps - 1 - tap) * dilation));
    const Value isHere = n.build<nn::GreaterEqualOp>({ragged.place, back});
    const Value index = n.sub(n.build<nn::WhereOp>({isHere, own, before}), back);
    const Value factor = n.reshape(n.slice(weights, 1, tap, 1), {channels});
    const Value term = n.mul(n.cast(rowsOf(n, rows, index), f32), factor);
    sum = sum ? n.add(sum, term) : term;
  }
  if (n.has(biasInput))
    sum = n.add(sum, n.cast(n.operand(biasInput), f32));
  const Value y = n.cast(sum, type);
  n.result(0, activation == "none" ? y : n.build<nn::SiluOp>(y));
  if (!n.wants(1) || n.failed())
    return;
  const Value last =
      n.sub(n.add(n.reshape(ragged.lengths, {sequences, 1}), countFrom(n, 0, Dim(history))), size);
  const Value firsts = n.add(ragged.begins, number(n, sequences * history));
  const Value numbers = n.mul(countFrom(n, 0, sequences), size);
  const Value inTokens = n.add(n.reshape(firsts, {sequences, 1}), last);
  const Value inState = n.add(n.add(n.reshape(numbers, {sequences, 1}), last), size);
  const Value isHere = n.build<nn::GreaterEqualOp>({last, zero});
  const Value kept = rowsOf(n, rows, n.build<nn::WhereOp>({isHere, inTokens, inState}));
  n.result(1, n.transpose(kept, {0, 2, 1}));
}

} // namespace fusion::onnx
