// GroupQueryAttention, with caches that grow by concatenation, and the table entry of its kin over pages.
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"
#include "ir/import/OpsPagedAttention.h"

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
  valueScaleInput,
  queryNormInput,
  keyNormInput,
  queryLengthsInput
};

struct Group {
  Value q, k, v; ///< [batch, heads, sequence, size]
  Dim batch, sequence, past;
  /// The first token's position in each batch entry, [batch, 1]. Null if all have all of the past.
  Value start;
  /// The past is a buffer of full capacity, in which the new tokens are written.
  bool isBuffer = false;
};

bool rejectUnsupported(NodeImporter &node) {
  if (node.has(queryLengthsInput))
    node.fail("query_seqlens is not supported");
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

/// Whether the cache grows by the new tokens, or is a buffer of full capacity in which they are written.
bool findCache(NodeImporter &node, Group &group) {
  auto total = node.known(totalLengthInput);
  const Dim grown = group.past + group.sequence;
  const auto declared = node.declaredDim(1, 2);
  const bool isBuffer = !(group.past == Dim(0)) &&
                        (node.owner().sharesCaches() || (declared && sameDim(node, *declared, group.past)));
  const bool fitsInPast = total && total->size() == 1 && total->front().isStatic() && group.past.isStatic() &&
                          total->front().value() <= group.past.value();
  if (isBuffer || fitsInPast) {
    if (node.has(biasInput))
      node.fail("attention_bias with a cache of full capacity is not supported");
    group.isBuffer = true;
    return !node.failed();
  }
  if (!total) {
    node.fail("total_sequence_length (input 6) depends on run-time data, so that the length of the past "
              "cannot be told from "
              "shapes, and the caches are not declared as buffers of full capacity, as long behind the node "
              "as before it");
    return false;
  }
  if (total->size() != 1 || (total->front() - grown).isStatic() != (total->front() == grown)) {
    node.fail("total_sequence_length (input 6) is " + shapeString(*total) + ", not past and new tokens, " +
              grown.str());
    return false;
  }
  node.owner().learn(total->front(), grown);
  return true;
}

/// Batch entries are padded on the right, so each one's new tokens follow its own valid past.
void findStart(NodeImporter &node, Group &group) {
  if (group.past == Dim(0) || (group.batch == Dim(1) && !group.isBuffer))
    return;
  Value lengths = node.cast(node.operand(lengthsInput), node.i64Type()); // of past and new tokens, less one
  lengths = node.reshape(lengths, {group.batch, 1});
  Value before = node.add(lengths, node.dimConstant(Dim(1) - group.sequence, {}, node.i64Type()));
  group.start = node.build<nn::MaxOp>({before, node.scalar(node.i64Type(), 0)});
}

/// The norms of each head's query and key that come before the rotation, in f32 and rounded once.
void normHeads(NodeImporter &node, Group &group) {
  if (node.has(queryNormInput) != node.has(keyNormInput))
    return node.fail("q_norm_weight and k_norm_weight come together");
  const double shared = node.floatAttribute("qk_norm_epsilon", 1e-6);
  const double queryEps = node.floatAttribute("q_norm_epsilon", shared);
  const double keyEps = node.floatAttribute("k_norm_epsilon", shared);
  if (!node.has(queryNormInput))
    return;
  auto norm = [&](Value x, unsigned weight, double eps) {
    return node.build<nn::RmsNormOp>({x, node.operand(weight)},
                                     {node.f32("eps", eps), node.type("scale_in", node.f32Type())});
  };
  group.q = norm(group.q, queryNormInput, queryEps);
  group.k = norm(group.k, keyNormInput, keyEps);
}

void rotateHeads(NodeImporter &node, Group &group, Value positions) {
  const bool interleaved = node.intAttribute("rotary_interleaved", 0) != 0;
  if (node.intAttribute("do_rotary", 0) == 0)
    return;
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
                                      {node.i64("axis", 2), node.flag("grows", !group.isBuffer)});
}

/// The last valid key of each batch entry, [batch, 1, 1, 1].
Value lastKeys(NodeImporter &node, const Group &group) {
  return node.reshape(node.cast(node.operand(lengthsInput), node.i64Type()), {group.batch, 1, 1, 1});
}

/// The scores' settings that the node names.
AttentionSettings settingsOf(NodeImporter &node) {
  AttentionSettings settings;
  settings.scale = node.floatAttribute("scale", 0);
  settings.softcap = node.floatAttribute("softcap", 0);
  return settings;
}

Value attendAsAsked(NodeImporter &node, const Group &group, Value k, Value v, Value mask,
                    const AttentionSettings &settings) {
  const bool isSmooth = node.intAttribute("smooth_softmax", 0) > 0;
  return mergeHeads(node, isSmooth || node.has(headSinkInput)
                              ? attendWithSink(node, group.q, k, v, mask,
                                               node.optionalOperand(headSinkInput), settings)
                              : attend(node, group.q, k, v, mask, settings));
}

/// The caches hold a window only, and evict by themselves.
void attendInWindow(NodeImporter &node, Group &group) {
  const int64_t window = node.intAttribute("local_window_size", -1);
  if (window < 1 || !node.has(pastKeyInput))
    return node.fail("sliding_window_cache needs local_window_size and caches");
  if (node.has(biasInput))
    return node.fail("attention_bias with sliding_window_cache is not supported");
  WindowedCache cache(node, node.operand(lengthsInput), group.batch, group.sequence, group.past, window);
  CodedCache keys(node, 'k', pastKeyInput, keyScaleInput), values(node, 'v', pastValueInput, valueScaleInput);
  normHeads(node, group);
  rotateHeads(node, group, cache.positions());
  const Value k = cache.withNew(node.operand(pastKeyInput), keys.encoded(group.k)),
              v = cache.withNew(node.operand(pastValueInput), values.encoded(group.v));
  const Value mask = cache.visible(node.intAttribute("causal", 1) != 0);
  node.result(0, attendAsAsked(node, group, keys.decoded(k), values.decoded(v), mask, settingsOf(node)));
  node.result(1, cache.left(k));
  node.result(2, cache.left(v));
}

void groupQueryAttention(NodeImporter &node) {
  Group group;
  if (!rejectUnsupported(node) || !splitInputs(node, group))
    return;
  if (node.intAttribute("sliding_window_cache", 0) != 0)
    return attendInWindow(node, group);
  if (!findCache(node, group))
    return;
  findStart(node, group);
  Value positions = countFrom(node, group.start ? Dim(0) : group.past, group.sequence);
  if (group.start)
    positions = node.add(group.start, positions);
  normHeads(node, group);
  rotateHeads(node, group, positions);
  CodedCache keys(node, 'k', pastKeyInput, keyScaleInput), values(node, 'v', pastValueInput, valueScaleInput);
  Value k = growCache(node, group, pastKeyInput, keys.encoded(group.k), positions),
        v = growCache(node, group, pastValueInput, values.encoded(group.v), positions);

  AttentionSettings settings = settingsOf(node);
  int64_t window = node.intAttribute("local_window_size", -1);
  const bool causal = node.intAttribute("causal", 1) != 0;
  Value kept;
  if (group.start && !node.failed()) {
    Value queries = node.reshape(positions, {group.batch, 1, group.sequence, 1});
    Value keys = countFrom(node, 0, node.shapeOf(k)[2]);
    kept = node.build<nn::LessEqualOp>({keys, causal ? queries : lastKeys(node, group)});
    if (window > 0) {
      Value oldest = node.sub(queries, node.scalar(node.i64Type(), static_cast<double>(window)));
      kept = both(node, kept, node.build<nn::GreaterOp>({keys, oldest}));
    }
  } else {
    settings.causal = causal;
    if (!causal)
      kept = node.build<nn::LessEqualOp>({countFrom(node, 0, node.shapeOf(k)[2]), lastKeys(node, group)});
    settings.window = std::max<int64_t>(window, 0);
  }
  Value mask = restrictMask(node, node.optionalOperand(biasInput), kept);
  node.result(0, attendAsAsked(node, group, keys.decoded(k), values.decoded(v), mask, settings));
  node.result(1, k);
  node.result(2, v);
}

} // namespace

void registerContribAttention(HandlerTable &table) {
  table.add("com.microsoft", "GroupQueryAttention", 1, 17, groupQueryAttention);
  table.add("com.microsoft", "PagedAttention", 1, 17, pagedAttention);
}

} // namespace fusion::onnx
