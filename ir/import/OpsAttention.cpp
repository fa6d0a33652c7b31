// ONNX's Attention, and what the contrib attentions share with it.
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace fusion::onnx {

bool sameDim(NodeImporter &node, const Dim &left, const Dim &right) {
  return node.owner().resolve(left - right) == Dim(0);
}

Value both(NodeImporter &node, Value kept, Value condition) {
  return kept ? node.build<nn::AndOp>({kept, condition}) : condition;
}

Value restrictMask(NodeImporter &node, Value mask, Value kept) {
  if (node.failed() || !mask || !kept)
    return mask ? mask : kept;
  if (NodeImporter::typeOf(mask).isInteger(1))
    return node.build<nn::AndOp>({mask, kept});
  Value minusInfinity = node.scalar(NodeImporter::typeOf(mask), -std::numeric_limits<double>::infinity());
  return node.build<nn::WhereOp>({kept, mask, minusInfinity});
}

double defaultScale(NodeImporter &node, Value q) {
  if (node.failed())
    return 0;
  auto size = node.owner().resolve(node.shapeOf(q).back()).constant();
  if (size && *size > 0)
    return 1.0 / std::sqrt(static_cast<double>(*size));
  node.fail("the head size is '" + node.shapeOf(q).back().str() + "', not a number");
  return 0;
}

Value attend(NodeImporter &node, Value q, Value k, Value v, Value mask, const AttentionSettings &settings) {
  double scale = settings.scale != 0 ? settings.scale : defaultScale(node, q);
  if (node.failed())
    return {};
  SmallVector<Value> operands = {q, k, v};
  if (mask)
    operands.push_back(mask);
  SmallVector<NamedAttribute> attributes = {node.f32("scale", scale), node.flag("causal", settings.causal),
                                            node.flag("zero_masked_rows", true)};
  if (settings.softcap != 0)
    attributes.push_back(node.f32("softcap", settings.softcap));
  if (settings.window > 0)
    attributes.push_back(node.i64("window", settings.window));
  return node.build<nn::AttentionOp>(operands, attributes);
}

namespace {

/// Everything that Attention's handler collects about one node.
struct Request {
  Value q, k, v;             ///< [batch, heads, sequence, size], past included
  Dim queries, keys, offset; ///< offset: how many keys come before the first query
  Value valid;               ///< valid keys of each batch entry as i64, [batch, 1, 1, 1]; null: all
  bool causal = false;
  int64_t left = -1, right = -1; ///< window; -1 means unbounded
};

bool collectHeads(NodeImporter &node, Request &request) {
  request.q = node.operand(0);
  request.k = node.operand(1);
  request.v = node.operand(2);
  if (node.failed())
    return false;
  if (node.rank(0) == 3) {
    int64_t heads = node.intAttribute("q_num_heads", 0), keyHeads = node.intAttribute("kv_num_heads", 0);
    request.q = splitHeads(node, request.q, heads);
    request.k = splitHeads(node, request.k, keyHeads);
    request.v = splitHeads(node, request.v, keyHeads);
  } else if (node.rank(0) != 4) {
    node.fail("Q has rank " + Twine(node.rank(0)) + ", not 3 or 4");
  }
  for (Value each : {request.q, request.k, request.v})
    if (!node.failed() && node.rankOf(each) != 4)
      node.fail("Q, K or V has rank " + Twine(node.rankOf(each)) + ", not that of the others");
  if (node.has(4) != node.has(5))
    node.fail("past_key and past_value come together");
  if (node.has(4)) {
    if (node.rank(4) != 4)
      node.fail("past_key has rank " + Twine(node.rank(4)) + ", not 4");
    else
      request.offset = node.shape(4)[2];
    request.k = node.concat({node.operand(4), request.k}, 2);
    request.v = node.concat({node.operand(5), request.v}, 2);
  }
  if (node.failed())
    return false;
  request.queries = node.shapeOf(request.q)[2];
  request.keys = node.shapeOf(request.k)[2];
  return true;
}

void collectValidKeys(NodeImporter &node, Request &request) {
  if (!node.has(6))
    return;
  if (node.has(4))
    return node.fail("nonpad_kv_seqlen goes with neither past_key nor past_value");
  if (node.rank(6) != 1)
    return node.fail("nonpad_kv_seqlen has rank " + Twine(node.rank(6)) + ", not 1");
  request.valid = node.reshape(node.cast(node.operand(6), node.i64Type()), {node.shape(6)[0], 1, 1, 1});
}

/// The keys that each query may see, as i1; null where the settings of nn.attention say all of it, which they
/// do not `explicitly`.
Value visibleKeys(NodeImporter &node, const Request &request, AttentionSettings &settings,
                  bool explicitly = false) {
  // nn.attention lets the last query see the last key. ONNX counts from the first.
  bool aligned =
      !explicitly && !request.valid && sameDim(node, request.keys, request.queries + request.offset);
  settings.causal = request.causal && aligned;
  settings.window = aligned && request.left >= 0 ? request.left + 1 : 0;
  bool explicitCausal = request.causal && !aligned, explicitLeft = request.left >= 0 && !aligned;
  Value kept;
  if (!explicitCausal && !explicitLeft && request.right < 0 && !request.valid)
    return kept;
  Value keys = countFrom(node, 0, request.keys);
  if (request.valid)
    kept = node.build<nn::LessOp>({keys, request.valid});
  Value queries = node.reshape(countFrom(node, request.offset, request.queries), {request.queries, 1});
  if (request.valid)
    queries =
        node.add(queries, node.sub(request.valid, node.dimConstant(request.queries, {}, node.i64Type())));
  auto shifted = [&](int64_t by) {
    return by == 0 ? queries : node.add(queries, node.scalar(node.i64Type(), static_cast<double>(by)));
  };
  if (explicitCausal)
    kept = both(node, kept, node.build<nn::LessEqualOp>({keys, queries}));
  if (explicitLeft)
    kept = both(node, kept, node.build<nn::GreaterEqualOp>({keys, shifted(-request.left)}));
  if (request.right >= 0)
    kept = both(node, kept, node.build<nn::LessEqualOp>({keys, shifted(request.right)}));
  return kept;
}

/// The mask of the file, to which keys past its end are not visible.
Value paddedMask(NodeImporter &node, const Dim &keys) {
  Value mask = node.optionalOperand(3);
  if (node.failed() || !mask)
    return mask;
  if (auto integer = llvm::dyn_cast<IntegerType>(NodeImporter::typeOf(mask));
      integer && integer.getWidth() > 1)
    mask =
        node.cast(mask, NodeImporter::typeOf(node.operand(0))); // only booleans choose; other masks are added
  if (node.failed() || node.rankOf(mask) == 0)
    return mask;
  const Dim &length = node.shapeOf(mask).back();
  Dim missing = node.owner().resolve(keys - length);
  if (length == Dim(1) || missing == Dim(0) || !missing.knownNonNegative())
    return mask;
  bool isBool = NodeImporter::typeOf(mask).isInteger(1);
  Value outside =
      node.scalar(NodeImporter::typeOf(mask), isBool ? 0.0 : -std::numeric_limits<double>::infinity());
  DimShape low(node.rankOf(mask), Dim(0)), high = low;
  high.back() = missing;
  return node.build<nn::PadOp>({mask, outside}, {node.dims("low", low), node.dims("high", high)});
}

/// The keys of each query's own head.
Value repeatedKeys(NodeImporter &node, const Request &request) {
  const DimShape q = node.shapeOf(request.q), k = node.shapeOf(request.k);
  if (sameDim(node, q[1], k[1]))
    return request.k;
  auto group = q[1].dividedBy(k[1]);
  if (!group) {
    node.fail("the number of heads is not a multiple of the number of key/value heads");
    return {};
  }
  Value keys = node.reshape(request.k, {k[0], k[1], 1, k[2], k[3]});
  return node.reshape(node.expand(keys, {k[0], k[1], *group, k[2], k[3]}), {k[0], q[1], k[2], k[3]});
}

/// Output 3: the scores as qk_matmul_output_mode wants them, computed beside the attention itself.
void scoresOutput(NodeImporter &node, const Request &request, const AttentionSettings &settings, Value mask) {
  int64_t mode = node.intAttribute("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3)
    return node.fail("qk_matmul_output_mode is " + Twine(mode));
  Type f32 = node.f32Type();
  Value scores =
      node.build<nn::MatmulOp>({request.q, repeatedKeys(node, request)}, node.flag("transpose_b", true), f32);
  scores = node.mul(scores, node.scalar(f32, settings.scale));
  if (mode >= 1 && settings.softcap != 0) {
    Value cap = node.scalar(f32, settings.softcap);
    scores = node.mul(node.build<nn::TanhOp>(node.div(scores, cap)), cap);
  }
  Value nothing = node.scalar(f32, -std::numeric_limits<double>::infinity());
  if (mode >= 2 && mask)
    scores = NodeImporter::typeOf(mask).isInteger(1) ? node.build<nn::WhereOp>({mask, scores, nothing})
                                                     : node.add(scores, node.cast(mask, f32));
  if (mode == 3 && !node.failed()) { // a row without keys is 0
    Value hidden = node.build<nn::EqualOp>({node.reduce(scores, "max", {3}), nothing});
    Value shares = node.build<nn::SoftmaxOp>(scores, node.i64("axis", 3));
    scores = node.build<nn::WhereOp>({hidden, node.scalar(f32, 0), shares});
  }
  node.result(3, node.cast(scores, NodeImporter::typeOf(request.q)));
}

/// Softmax is in f32, which is no less precise than what softmax_precision asks for.
void attention(NodeImporter &node) {
  Request request;
  if (!collectHeads(node, request))
    return;
  collectValidKeys(node, request);
  request.causal = node.intAttribute("is_causal", 0) != 0;
  request.left = node.intAttribute("left_window_size", -1);
  request.right = node.intAttribute("right_window_size", -1);
  AttentionSettings settings;
  settings.scale =
      node.hasAttribute("scale") ? node.floatAttribute("scale", 0) : defaultScale(node, request.q);
  settings.softcap = node.floatAttribute("softcap", 0);
  Value given = paddedMask(node, request.keys);
  Value mask = restrictMask(node, given, visibleKeys(node, request, settings));
  Value y = attend(node, request.q, request.k, request.v, mask, settings);
  node.result(0, node.rank(0) == 3 ? mergeHeads(node, y) : y);
  node.result(1, request.k);
  node.result(2, request.v);
  if (node.wants(3))
    scoresOutput(node, request, settings,
                 restrictMask(node, given, visibleKeys(node, request, settings, true)));
}

} // namespace

void registerAttention(HandlerTable &table) { table.add("", "Attention", 3, 7, attention); }

} // namespace fusion::onnx
