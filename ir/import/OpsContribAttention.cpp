// The contrib attentions: GroupQueryAttention and MultiHeadAttention, with caches that grow by concatenation.
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

// Inputs of GroupQueryAttention.
enum : unsigned {
  pastKeyInput = 3,
  pastValueInput,
  lengthsInput,
  totalLengthInput,
  cosInput,
  sinInput,
  positionsInput,
  biasInput,
  headSinkInput,
  keyScaleInput,
  valueScaleInput
};

struct Group {
  Value q, k, v; ///< [batch, heads, sequence, size]
  Dim batch, sequence, past;
  /// The first token's position in each batch entry, [batch, 1]. Null if all have all of the past.
  Value start;
};

bool rejectUnsupported(NodeImporter &node) {
  if (node.intAttribute("smooth_softmax", 0) > 0 || node.has(headSinkInput))
    node.fail("smooth_softmax and head_sink are not supported");
  if (node.has(keyScaleInput) || node.has(valueScaleInput) || node.intAttribute("kv_cache_bit_width", 0) != 0)
    node.fail("a quantised key/value cache is not supported");
  if (node.intAttribute("qk_output", 0) != 0 || node.wants(3))
    node.fail("qk_output is not supported");
  if (node.has(pastKeyInput) != node.has(pastValueInput))
    node.fail("past_key and past_value come together");
  return !node.failed();
}

bool splitInputs(NodeImporter &node, Group &group) {
  int64_t heads = node.intAttribute("num_heads", 0), keyHeads = node.intAttribute("kv_num_heads", 0);
  if (heads <= 0 || keyHeads <= 0 || node.rank(0) != 3) {
    node.fail("needs num_heads, kv_num_heads and a query of rank 3");
    return false;
  }
  Value q = node.operand(0), k, v;
  if (node.has(1)) {
    k = node.operand(1);
    v = node.operand(2);
  } else {
    auto size = node.shape(0)[2].dividedBy(heads + 2 * keyHeads);
    if (!size) {
      node.fail("a packed query of " + shapeString(node.shape(0)) + " does not divide into heads");
      return false;
    }
    Value packed = q;
    q = node.slice(packed, 2, 0, *size * heads);
    k = node.slice(packed, 2, *size * heads, *size * keyHeads);
    v = node.slice(packed, 2, *size * (heads + keyHeads), *size * keyHeads);
  }
  group.q = splitHeads(node, q, heads);
  group.k = splitHeads(node, k, keyHeads);
  group.v = splitHeads(node, v, keyHeads);
  if (node.failed())
    return false;
  group.batch = node.shapeOf(group.q)[0];
  group.sequence = node.shapeOf(group.q)[2];
  group.past = node.has(pastKeyInput) && node.rank(pastKeyInput) == 4 ? node.shape(pastKeyInput)[2] : Dim(0);
  return true;
}

/// The cache must grow by the new tokens: present = past + new.
bool checkCacheGrows(NodeImporter &node, const Group &group) {
  constexpr const char *shared =
      "the key/value cache is a shared buffer of full capacity; only caches that grow "
      "by the new tokens are supported";
  auto total = node.known(totalLengthInput);
  if (!total) {
    node.fail(
        "total_sequence_length (input 6) depends on run-time data, so that the length of the past cannot be "
        "told from shapes; a shared buffer of full capacity is not supported");
    return false;
  }
  Dim grown = group.past + group.sequence, declared = node.declaredDim(1, 2).value_or(grown);
  bool contradicts = total->size() != 1 || (total->front() - grown).isStatic() != (total->front() == grown);
  if (contradicts || (!(group.past == Dim(0)) && sameDim(node, declared, group.past))) {
    node.fail(shared);
    return false;
  }
  node.owner().learn(total->front(), grown);
  return true;
}

/// Batch entries are padded on the right, so each one's new tokens follow its own valid past.
void findStart(NodeImporter &node, Group &group) {
  if (group.past == Dim(0) || group.batch == Dim(1))
    return;
  Value lengths = node.cast(node.operand(lengthsInput), node.i64Type()); // of past and new tokens, less one
  lengths = node.reshape(lengths, {group.batch, 1});
  Value before = node.add(lengths, node.dimConstant(Dim(1) - group.sequence, {}, node.i64Type()));
  group.start = node.build<nn::MaxOp>({before, node.scalar(node.i64Type(), 0)});
}

void rotateHeads(NodeImporter &node, Group &group, Value positions) {
  if (node.intAttribute("do_rotary", 0) == 0)
    return;
  bool interleaved = node.intAttribute("rotary_interleaved", 0) != 0;
  if (!node.has(cosInput) || !node.has(sinInput))
    return node.fail("do_rotary needs cos_cache and sin_cache");
  if (node.has(positionsInput))
    positions = node.cast(node.operand(positionsInput), node.i64Type());
  Value cos = tableRows(node, node.operand(cosInput), positions);
  Value sin = tableRows(node, node.operand(sinInput), positions);
  group.q = rotate(node, group.q, cos, sin, interleaved);
  group.k = rotate(node, group.k, cos, sin, interleaved);
}

/// Past and new tokens in one tensor, each batch entry's new tokens right after its own valid past. What
/// follows them is not specified; here the past's rows stay.
Value growCache(NodeImporter &node, const Group &group, unsigned pastInput, Value fresh, Value positions) {
  if (!node.has(pastInput))
    return fresh;
  if (!group.start || node.failed())
    return node.concat({node.operand(pastInput), fresh}, 2);
  Value rows = node.reshape(positions, {group.batch, 1, group.sequence, 1});
  return node.build<nn::CacheWriteOp>({node.operand(pastInput), fresh, rows},
                                      {node.i64("axis", 2), node.flag("grows", true)});
}

void groupQueryAttention(NodeImporter &node) {
  Group group;
  if (!rejectUnsupported(node) || !splitInputs(node, group) || !checkCacheGrows(node, group))
    return;
  findStart(node, group);
  Value positions = countFrom(node, group.start ? Dim(0) : group.past, group.sequence);
  if (group.start)
    positions = node.add(group.start, positions);
  rotateHeads(node, group, positions);
  Value k = growCache(node, group, pastKeyInput, group.k, positions),
        v = growCache(node, group, pastValueInput, group.v, positions);

  AttentionSettings settings;
  settings.scale = node.floatAttribute("scale", 0);
  settings.softcap = node.floatAttribute("softcap", 0);
  int64_t window = node.intAttribute("local_window_size", -1);
  Value kept;
  if (group.start && !node.failed()) {
    Value queries = node.reshape(positions, {group.batch, 1, group.sequence, 1});
    Value keys = countFrom(node, 0, node.shapeOf(k)[2]);
    kept = node.build<nn::LessEqualOp>({keys, queries});
    if (window > 0) {
      Value oldest = node.sub(queries, node.scalar(node.i64Type(), static_cast<double>(window)));
      kept = both(node, kept, node.build<nn::GreaterOp>({keys, oldest}));
    }
  } else {
    settings.causal = true;
    settings.window = std::max<int64_t>(window, 0);
  }
  Value mask = restrictMask(node, node.optionalOperand(biasInput), kept);
  node.result(0, mergeHeads(node, attend(node, group.q, k, v, mask, settings)));
  node.result(1, k);
  node.result(2, v);
}

/// Keys or values of MultiHeadAttention as [batch, heads, sequence, size].
Value headsOf(NodeImporter &node, Value x, int64_t heads) {
  return node.rankOf(x) == 4 ? x : splitHeads(node, x, heads);
}

/// The mask from key_padding_mask (input 4), to be added to the scores.
Value paddingMask(NodeImporter &node) {
  Value padding = node.cast(node.operand(4), node.i64Type());
  if (node.failed())
    return {};
  DimShape shape = node.shapeOf(padding);
  if (shape.size() != 2) {
    node.fail("key_padding_mask has rank " + Twine(shape.size()) + ", not 2");
    return {};
  }
  Type f32 = node.f32Type();
  Value given = node.build<nn::GreaterOp>(
      {node.reshape(padding, {shape[0], 1, 1, shape[1]}), node.scalar(node.i64Type(), 0)});
  Value hidden = node.scalar(f32, node.floatAttribute("mask_filter_value", -10000.0));
  return node.build<nn::WhereOp>({given, node.scalar(f32, 0), hidden});
}

void multiHeadAttention(NodeImporter &node) {
  int64_t heads = node.intAttribute("num_heads", 0);
  if (node.rank(0) != 3 || !node.has(1) || !node.has(2))
    return node.fail("packed queries, keys and values are not supported");
  if (node.has(8) || node.has(9) || node.wants(3))
    return node.fail("past_sequence_length, cache_indirection and the qk output are not supported");
  if (node.has(6) != node.has(7))
    return node.fail("past_key and past_value come together");
  Value parts[3] = {node.operand(0), node.operand(1), node.operand(2)};
  if (node.has(3)) { // one bias for all three, end to end
    Dim start = 0;
    for (Value &part : parts) {
      Dim width = node.failed() ? Dim(0) : node.shapeOf(part).back();
      if (node.rankOf(part) != 3)
        return node.fail("a bias needs queries, keys and values of rank 3");
      part = node.add(part, node.slice(node.operand(3), 0, start, width));
      start = start + width;
    }
  }
  Value q = headsOf(node, parts[0], heads), k = headsOf(node, parts[1], heads),
        v = headsOf(node, parts[2], heads);
  if (node.has(6)) {
    k = node.concat({node.operand(6), k}, 2);
    v = node.concat({node.operand(7), v}, 2);
  }
  Value mask = node.optionalOperand(5);
  if (node.has(4)) {
    Value padding = paddingMask(node);
    mask = mask ? node.add(node.cast(mask, node.f32Type()), padding) : padding;
  }
  AttentionSettings settings;
  settings.scale = node.floatAttribute("scale", 0);
  settings.causal = node.intAttribute("unidirectional", 0) != 0;
  node.result(0, mergeHeads(node, attend(node, q, k, v, mask, settings)));
  node.result(1, k);
  node.result(2, v);
}

} // namespace

void registerContribAttention(HandlerTable &table) {
  table.add("com.microsoft", "GroupQueryAttention", 1, 14, groupQueryAttention);
  table.add("com.microsoft", "MultiHeadAttention", 1, 10, multiHeadAttention);
}

} // namespace fusion::onnx
