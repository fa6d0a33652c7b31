// The contrib attentions with a key/value head for every head: Attention, QAttention, MultiHeadAttention and
// its decoding form.
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

struct Heads {
  Value q, k, v; ///< [batch, heads, sequence, size]; k and v with the past
  Dim past{0};   ///< keys before the first query
};

/// One of the `count` parts in dim 3 of [batch, sequence, heads, count, size], as [batch, heads, sequence,
/// size].
Value packedPart(NodeImporter &node, Value packed, int64_t count, int64_t part) {
  if (node.failed())
    return {};
  const DimShape shape = node.shapeOf(packed);
  if (shape.size() != 5 || !(shape[3] == Dim(count))) {
    node.fail("a packed tensor of " + shapeString(shape) + " is not [batch, sequence, heads, " +
              Twine(count) + ", size]");
    return {};
  }
  Value x = node.reshape(node.slice(packed, 3, part, 1), {shape[0], shape[1], shape[2], shape[4]});
  return node.transpose(x, {0, 2, 1, 3});
}

/// Added to scores: 0 for the keys that `kept` chooses, mask_filter_value for others.
Value filtered(NodeImporter &node, Value kept) {
  const Type f32 = node.f32Type();
  const Value hidden = node.scalar(f32, node.floatAttribute("mask_filter_value", -10000.0));
  return node.build<nn::WhereOp>({kept, node.scalar(f32, 0), hidden});
}

/// Keys before the ends, and from the starts on where there are any: entry `b` of the mask's first or second
/// `batch`.
Value keysBetween(NodeImporter &node, Value bounds, const Dim &batch, bool hasStarts, const Dim &keys) {
  const Value slots = countFrom(node, 0, keys);
  auto bound = [&](const Dim &first) {
    return node.reshape(node.slice(bounds, 0, first, batch), {batch, 1, 1, 1});
  };
  Value kept = node.build<nn::LessOp>({slots, bound(0)});
  return hasStarts ? both(node, kept, node.build<nn::GreaterEqualOp>({slots, bound(batch)})) : kept;
}

/// What input `index` masks, to be added to the scores: [batch], [2 batch] or [3 batch + 2] with ends (and
/// starts) of the keys, [batch, keys], [batch, queries, keys], or [batch, 1, most, most] of which the tokens'
/// part counts.
Value keyMask(NodeImporter &node, unsigned index, const Heads &heads) {
  Value mask = node.cast(node.operand(index), node.i64Type());
  if (node.failed())
    return {};
  const DimShape shape = node.shapeOf(mask), q = node.shapeOf(heads.q);
  const Dim batch = q[0], queries = q[2], keys = node.shapeOf(heads.k)[2];
  if (shape.size() == 1) {
    const bool hasStarts = sameDim(node, shape[0], batch * Dim(2));
    const bool isCumulative = sameDim(node, shape[0], batch * Dim(3) + Dim(2));
    if (!hasStarts && !isCumulative)
      node.owner().learn(shape[0], batch);
    return filtered(node, keysBetween(node, mask, batch, hasStarts, keys));
  }
  if (shape.size() == 2) {
    mask = node.reshape(mask, {shape[0], 1, 1, shape[1]});
  } else if (shape.size() == 3) {
    mask = node.reshape(mask, {shape[0], 1, shape[1], shape[2]});
  } else if (shape.size() == 4) {
    mask = node.slice(node.slice(mask, 2, heads.past, queries), 3, 0, keys);
  } else {
    node.fail("a mask of " + shapeString(shape) + " is not supported");
    return {};
  }
  return filtered(node, node.build<nn::GreaterOp>({mask, node.scalar(node.i64Type(), 0)}));
}

Value sumOf(NodeImporter &node, Value left, Value right) {
  if (!left || !right)
    return left ? left : right;
  return node.add(node.cast(left, node.f32Type()), node.cast(right, node.f32Type()));
}

/// The attention itself, heads merged.
Value attendHeads(NodeImporter &node, const Heads &heads, Value mask) {
  node.ignore({"mask_filter_value"}); // without a mask it says nothing
  AttentionSettings settings;
  settings.scale = node.floatAttribute("scale", 0);
  if (node.intAttribute("unidirectional", 0) != 0 && !node.failed()) {
    const Dim queries = node.shapeOf(heads.q)[2], keys = node.shapeOf(heads.k)[2];
    if (sameDim(node, keys, heads.past + queries)) {
      settings.causal = true;
    } else { // counted from the first key
      const Value rows = node.reshape(countFrom(node, heads.past, queries), {queries, 1});
      mask = restrictMask(node, mask, node.build<nn::LessEqualOp>({countFrom(node, 0, keys), rows}));
    }
  }
  return mergeHeads(node, attend(node, heads.q, heads.k, heads.v, mask, settings));
}

bool rejectSharedBuffer(NodeImporter &node) {
  if (node.intAttribute("past_present_share_buffer", 0) != 0)
    node.fail(
        "past_present_share_buffer is not supported: where the new tokens go depends on run-time data; only "
        "caches that grow by the new tokens are supported");
  return node.failed();
}

/// Attention and QAttention from [batch, sequence, sizes of q, k and v side by side].
void attendProjected(NodeImporter &node, Value projected, unsigned maskInput, unsigned pastInput,
                     std::optional<unsigned> biasInput) {
  const int64_t count = node.intAttribute("num_heads", 0);
  if (rejectSharedBuffer(node))
    return;
  if (node.intAttribute("do_rotary", 0) != 0)
    return node.fail("do_rotary is not supported");
  const DimShape shape = node.shapeOf(projected);
  std::vector<int64_t> sizes = node.intsAttribute("qkv_hidden_sizes");
  if (sizes.empty() && shape.size() == 3 && shape[2].isStatic())
    sizes.assign(3, shape[2].value() / 3);
  if (shape.size() != 3 || sizes.size() != 3 || !(shape[2] == Dim(sizes[0] + sizes[1] + sizes[2])))
    return node.fail("a projection to " + shapeString(shape) + " does not divide into q, k and v");
  Heads heads;
  Value *const parts[3] = {&heads.q, &heads.k, &heads.v};
  for (int64_t i = 0, start = 0; i < 3; start += sizes[i++])
    *parts[i] = splitHeads(node, node.slice(projected, 2, start, sizes[i]), count);
  if (node.failed())
    return;
  if (node.has(pastInput)) {
    const DimShape past = node.shape(pastInput);
    if (past.size() != 5)
      return node.fail("past of " + shapeString(past) + " is not [2, batch, heads, past, size]");
    heads.past = past[3];
    auto half = [&](int64_t part) {
      return node.reshape(node.slice(node.operand(pastInput), 0, part, 1),
                          {past[1], past[2], past[3], past[4]});
    };
    heads.k = node.concat({half(0), heads.k}, 2);
    heads.v = node.concat({half(1), heads.v}, 2);
  }
  Value mask = node.has(maskInput) ? keyMask(node, maskInput, heads) : Value();
  if (biasInput)
    mask = sumOf(node, node.optionalOperand(*biasInput), mask);
  node.result(0, attendHeads(node, heads, mask));
  if (node.wants(1) && !node.failed()) {
    auto stacked = [&](Value x) {
      DimShape one = node.shapeOf(x);
      one.insert(one.begin(), Dim(1));
      return node.reshape(x, one);
    };
    node.result(1, node.concat({stacked(heads.k), stacked(heads.v)}, 0));
  }
}

void attention(NodeImporter &node) {
  node.ignore({"rotary_embedding_dim"});
  Value projected = node.build<nn::MatmulOp>({node.operand(0), node.operand(1)});
  if (node.has(2))
    projected = node.add(projected, node.operand(2));
  if (node.has(6))
    return node.fail("past_sequence_length is not supported: only caches that grow by the new tokens are");
  attendProjected(node, projected, 3, 4, 5);
}

/// The product of the integers, made a float with both scales, then as Attention.
void quantisedAttention(NodeImporter &node) {
  Value sums = integerMatmul(node, {0, 6}, {1, 7});
  Value projected = node.mul(node.cast(sums, node.f32Type()),
                             node.mul(scaleOperand(node, 3, true), scaleOperand(node, 4, false)));
  if (node.has(2))
    projected = node.add(projected, node.operand(2));
  attendProjected(node, projected, 5, 8, std::nullopt);
}

/// Where the inputs of MultiHeadAttention and of its decoding form are.
struct Inputs {
  unsigned bias, mask, scores, past;
};

/// q, k and v of inputs 0 to 2, which may be packed, with the bias of the projections added.
void collectHeads(NodeImporter &node, const Inputs &inputs, Heads &heads) {
  const int64_t count = node.intAttribute("num_heads", 0);
  Value parts[3] = {node.operand(0), node.optionalOperand(1), node.optionalOperand(2)};
  if (node.failed())
    return;
  const int64_t rank = node.rank(0), keyRank = node.has(1) ? node.rank(1) : 0;
  if (!parts[1] && rank == 3) { // side by side
    auto size = node.shape(0)[2].dividedBy(3);
    if (!size)
      return node.fail("a packed query of " + shapeString(node.shape(0)) +
                       " does not divide into q, k and v");
    for (int64_t i = 2; i >= 0; --i)
      parts[i] = node.slice(parts[0], 2, *size * i, *size);
  } else if (!parts[1] && rank == 5) {
    for (int64_t i = 2; i >= 0; --i)
      parts[i] = packedPart(node, parts[0], 3, i);
  } else if (!parts[2] && keyRank == 5) {
    for (int64_t i = 1; i >= 0; --i)
      parts[i + 1] = packedPart(node, parts[1], 2, i);
  } else if (!parts[1] || !parts[2]) {
    return node.fail("key and value are neither given nor packed");
  }
  Dim start = 0;
  for (int64_t i = 0; i < 3 && !node.failed(); ++i) {
    const DimShape shape = node.shapeOf(parts[i]);
    if (shape.size() != 3 && shape.size() != 4)
      return node.fail("query, key or value of " + shapeString(shape));
    const bool isSplit = shape.size() == 4, isCache = isSplit && keyRank == 4;
    const Dim width = isSplit ? shape[1] * shape[3] : shape.back();
    Value bias =
        node.has(inputs.bias) && !isCache ? node.slice(node.operand(inputs.bias), 0, start, width) : Value();
    if (bias && isSplit)
      bias = node.reshape(bias, {shape[1], 1, shape[3]});
    Value x = bias ? node.add(parts[i], bias) : parts[i];
    (i == 0 ? heads.q : i == 1 ? heads.k : heads.v) = isSplit ? x : splitHeads(node, x, count);
    start = start + width;
  }
  if (node.has(inputs.past) != node.has(inputs.past + 1))
    return node.fail("past_key and past_value come together");
  if (node.has(inputs.past) && !node.failed()) {
    if (node.rank(inputs.past) != 4)
      return node.fail("past_key has rank " + Twine(node.rank(inputs.past)) + ", not 4");
    heads.past = node.shape(inputs.past)[2];
    heads.k = node.concat({node.operand(inputs.past), heads.k}, 2);
    heads.v = node.concat({node.operand(inputs.past + 1), heads.v}, 2);
  }
}

void attendSeparate(NodeImporter &node, const Inputs &inputs) {
  if (node.wants(3))
    return node.fail("the output of q kᵀ is not supported");
  Heads heads;
  collectHeads(node, inputs, heads);
  if (node.failed())
    return;
  Value mask = node.has(inputs.mask) ? keyMask(node, inputs.mask, heads) : Value();
  mask = sumOf(node, node.optionalOperand(inputs.scores), mask);
  node.result(0, attendHeads(node, heads, mask));
  node.result(1, heads.k);
  node.result(2, heads.v);
}

void multiHeadAttention(NodeImporter &node) {
  if (node.has(8) || node.has(9))
    return node.fail(
        "past_sequence_length and cache_indirection are not supported: only caches that grow by the new "
        "tokens are");
  attendSeparate(node, {.bias = 3, .mask = 4, .scores = 5, .past = 6});
}

void decoderMaskedAttention(NodeImporter &node) {
  if (rejectSharedBuffer(node))
    return;
  if (node.has(9))
    return node.fail("cache_indirection is not supported");
  node.ignore({"output_qk"});
  attendSeparate(node, {.bias = 10, .mask = 3, .scores = 4, .past = 5});
}

void packedTokens(NodeImporter &node) {
  node.fail("tokens packed without padding are not supported: how many there are depends on run-time data");
}

} // namespace

void registerMultiHeadAttention(HandlerTable &table) {
  constexpr StringRef contrib = "com.microsoft";
  table.add(contrib, "Attention", 2, 7, attention);
  table.add(contrib, "QAttention", 5, 9, quantisedAttention);
  table.add(contrib, "MultiHeadAttention", 1, 10, multiHeadAttention);
  table.add(contrib, "DecoderMaskedMultiHeadAttention", 1, 11, decoderMaskedAttention);
  for (StringRef op : {"PackedAttention", "PackedMultiHeadAttention", "RemovePadding", "RestorePadding"})
    table.add(contrib, op, 0, HandlerTable::anyNumber, packedTokens);
}

} // namespace fusion::onnx
