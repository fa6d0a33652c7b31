// Attention with a sink (head_sink and smooth_softmax): a score of each head beside those of the keys.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

/// x with one more entry in front of its dim `axis`.
static Value withFront(NodeImporter &node, Value x, int64_t axis, double value) {
  DimShape low(node.rankOf(x), Dim(0)), high = low;
  if (node.failed())
    return {};
  low[axis] = 1;
  return node.build<nn::PadOp>({x, node.scalar(NodeImporter::typeOf(x), value)},
                               {node.dims("low", low), node.dims("high", high)});
}

/// A sink takes its share of every row and gives nothing: a key and a value of zeros in front, whose score is
/// the sink. In front, it is no later than any query.
Value attendWithSink(NodeImporter &node, Value q, Value k, Value v, Value mask, Value sink,
                     AttentionSettings settings) {
  if (node.failed())
    return {};
  const Type f32 = node.f32Type();
  const Dim queries = node.shapeOf(q)[2], keys = node.shapeOf(k)[2], heads = node.shapeOf(q)[1];
  if (settings.window > 0) { // the sink is in every window
    Value rows = node.reshape(countFrom(node, keys - queries, queries), {queries, 1});
    Value oldest = node.sub(rows, node.scalar(node.i64Type(), static_cast<double>(settings.window)));
    mask = restrictMask(node, mask, node.build<nn::GreaterOp>({countFrom(node, 0, keys), oldest}));
    settings.window = 0;
  }
  if (sink && (node.rankOf(sink) != 1 || !sameDim(node, node.shapeOf(sink)[0], heads)))
    node.fail("head_sink is not one score of each head but " + shapeString(node.shapeOf(sink)));
  if (node.failed())
    return {};
  sink = sink ? node.reshape(node.cast(sink, f32), {1, heads, 1, 1})
              : node.expand(node.scalar(f32, 0), {1, heads, 1, 1});
  Value scores = node.concat({sink, node.expand(node.scalar(f32, 0), {1, heads, 1, keys})}, 3);
  if (mask && !node.failed()) {
    const bool chooses = NodeImporter::typeOf(mask).isInteger(1);
    Value wide = withFront(node, mask, node.rankOf(mask) - 1, chooses ? 1 : 0);
    scores = chooses ? restrictMask(node, scores, wide) : node.add(node.cast(wide, f32), scores);
  }
  return attend(node, q, withFront(node, k, 2, 0), withFront(node, v, 2, 0), scores, settings);
}

} // namespace fusion::onnx
