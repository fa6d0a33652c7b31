// Rotary position embedding: ONNX's own op and the contrib op.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

Value splitHeads(NodeImporter &node, Value x, int64_t heads) {
  if (node.failed())
    return {};
  DimShape shape = node.shapeOf(x);
  auto size = shape.size() == 3 && heads > 0 ? shape[2].dividedBy(heads) : std::nullopt;
  if (!size) {
    node.fail("a tensor of " + shapeString(shape) + " does not divide into " + Twine(heads) + " heads");
    return {};
  }
  return node.transpose(node.reshape(x, {shape[0], shape[1], heads, *size}), {0, 2, 1, 3});
}

Value mergeHeads(NodeImporter &node, Value x) {
  if (node.failed())
    return {};
  DimShape shape = node.shapeOf(x);
  return node.reshape(node.transpose(x, {0, 2, 1, 3}), {shape[0], shape[2], shape[1] * shape[3]});
}

Value countFrom(NodeImporter &node, const Dim &start, const Dim &size) {
  Value first = node.dimConstant(start, {}, node.i64Type()), step = node.scalar(node.i64Type(), 1);
  return node.build<nn::IotaOp>({first, step}, node.dims("size", size));
}

Value tableRows(NodeImporter &node, Value table, Value indices) {
  Value rows = node.build<nn::GatherOp>({table, indices}, node.i64("axis", 0));
  DimShape shape = node.shapeOf(rows);
  if (node.failed())
    return {};
  if (shape.size() == 2)
    return node.reshape(rows, {1, 1, shape[0], shape[1]});
  return node.reshape(rows, {shape[0], 1, shape[1], shape[2]});
}

Value rotate(NodeImporter &node, Value x, Value cos, Value sin, bool interleaved) {
  if (node.failed())
    return {};
  const Dim &half = node.shapeOf(cos).back();
  if (!half.isStatic()) {
    node.fail("the width of the cos table is '" + half.str() + "', not a number");
    return {};
  }
  return node.build<nn::RopeOp>(
      {x, node.cast(cos, NodeImporter::typeOf(x)), node.cast(sin, NodeImporter::typeOf(x))},
      {node.flag("interleaved", interleaved), node.i64("rotary_dim", 2 * half.value())});
}

namespace {

/// The positions of the tokens as i64: [batch, sequence], or [sequence] for one offset that serves all.
Value tokenPositions(NodeImporter &node, Value ids, const Dim &sequence) {
  ids = node.cast(ids, node.i64Type());
  if (node.failed() || node.rankOf(ids) == 2)
    return ids;
  if (node.rankOf(ids) > 2 || product(node.shapeOf(ids)) != Dim(1)) {
    node.fail("position_ids of " + shapeString(node.shapeOf(ids)) +
              " is neither one offset nor [batch, sequence]");
    return {};
  }
  return node.add(node.reshape(ids, {1}), countFrom(node, 0, sequence));
}

void rotaryEmbedding(NodeImporter &node, unsigned positionsInput, unsigned cosInput, unsigned sinInput) {
  DimShape shape = node.shape(0);
  Value x = node.operand(0), cos = node.operand(cosInput), sin = node.operand(sinInput);
  int64_t heads = node.intAttribute("num_heads", 0), rotary = node.intAttribute("rotary_embedding_dim", 0);
  bool interleaved = node.intAttribute("interleaved", 0) != 0, flat = shape.size() == 3;
  if (node.failed())
    return;
  if (!flat && shape.size() != 4)
    return node.fail("the input has rank " + Twine(shape.size()) + ", not 3 or 4");
  const Dim sequence = flat ? shape[1] : shape[2],
            width = node.shapeOf(cos).empty() ? 0 : node.shapeOf(cos).back();
  if (rotary != 0 && !(width == Dim(rotary / 2)))
    return node.fail("the cos table has width " + width.str() + " but rotary_embedding_dim is " +
                     Twine(rotary));
  if (flat) {
    // Without a number of heads, the tables tell the size of one.
    auto size = shape[2].dividedBy(heads > 0 ? Dim(heads) : width * Dim(2));
    if (!size)
      return node.fail("a last dim of " + shape[2].str() + " does not divide into heads");
    x = heads > 0 ? node.reshape(x, {shape[0], shape[1], heads, *size})
                  : node.reshape(x, {shape[0], shape[1], *size, width * Dim(2)});
  }
  for (Value *table : {&cos, &sin}) {
    if (node.has(positionsInput)) {
      *table = tableRows(node, *table, tokenPositions(node, node.operand(positionsInput), sequence));
    } else if (node.rankOf(*table) == 3) {
      const DimShape rows = node.shapeOf(*table);
      *table = node.reshape(*table, {rows[0], 1, rows[1], rows[2]});
    } else {
      return node.fail("without position_ids the tables are [batch, sequence, width]");
    }
    if (node.failed())
      return;
    if (flat) { // the heads come after the sequence
      const DimShape rows = node.shapeOf(*table);
      *table = node.reshape(*table, {rows[0], rows[2], 1, rows[3]});
    }
  }
  node.result(0, node.reshape(rotate(node, x, cos, sin, interleaved), shape));
}

void contribRotaryEmbedding(NodeImporter &node) {
  if (node.floatAttribute("scale", 1.0) != 1.0)
    return node.fail("scale other than 1 is not supported");
  if (node.intAttribute("is_packed_batching", 0) != 0)
    return node.fail("is_packed_batching is not supported");
  rotaryEmbedding(node, 1, 2, 3);
}

} // namespace

void registerRotary(HandlerTable &table) {
  table.add("", "RotaryEmbedding", 3, 4, [](NodeImporter &node) { rotaryEmbedding(node, 3, 1, 2); });
  table.add("com.microsoft", "RotaryEmbedding", 4, 4, contribRotaryEmbedding);
}

} // namespace fusion::onnx
