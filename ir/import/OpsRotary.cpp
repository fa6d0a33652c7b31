// Rotary position embedding: ONNX's own op and the contrib op.
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

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

/// For each column of the tables, which of three positions of a token it takes: time, height or width. Empty
/// with a failure where the sections do not fill the tables.
std::vector<int64_t> streamsOf(NodeImporter &node, int64_t width) {
  const std::vector<int64_t> sections = node.intsAttribute("mrope_section");
  const int64_t layout = node.intAttribute("mrope_layout", 0);
  const bool isValid = sections.size() == 3 && llvm::all_of(sections, [](int64_t size) { return size >= 0; });
  if (!isValid || sections[0] + sections[1] + sections[2] != width) {
    node.fail("mrope_section does not divide tables of width " + Twine(width) + " in three");
    return {};
  }
  if (layout != 0 && layout != 1) {
    node.fail("mrope_layout is " + Twine(layout) + ", neither 0 nor 1");
    return {};
  }
  std::vector<int64_t> streams(width, 0);
  for (int64_t column = 0; column < width; ++column) {
    const int64_t turn = column % 3;
    if (layout == 0)
      streams[column] = column < sections[0] ? 0 : column < sections[0] + sections[1] ? 1 : 2;
    else if (turn != 0 && column < 3 * sections[turn])
      streams[column] = turn;
  }
  return streams;
}

/// Rows of a table for three positions of each token, [3, batch, sequence]: [batch, 1, sequence, width].
Value tableRowsOfStreams(NodeImporter &node, Value table, Value positions) {
  const DimShape shape = node.shapeOf(positions);
  if (node.failed())
    return {};
  if (node.rankOf(table) != 2) {
    node.fail("a table of " + shapeString(node.shapeOf(table)) + " is not [positions, width]");
    return {};
  }
  const Dim width = node.owner().resolve(node.shapeOf(table).back());
  if (shape.size() != 3 || node.owner().resolve(shape[0]) != Dim(3) || !width.isStatic()) {
    node.fail("position_ids of " + shapeString(shape) + " are not [3, batch, sequence]");
    return {};
  }
  const std::vector<int64_t> streams = streamsOf(node, width.value());
  if (node.failed())
    return {};
  const Value ids = node.cast(positions, node.i64Type());
  const Value columns = node.constant(Tensor::of<int64_t>(DType::I64, {width.value()}, streams));
  Value rows;
  for (int64_t stream = 0; stream < 3; ++stream) {
    if (!llvm::is_contained(streams, stream))
      continue;
    const Value chosen = node.reshape(node.slice(ids, 0, Dim(stream), Dim(1)), {shape[1], shape[2]});
    const Value own = tableRows(node, table, chosen);
    const Value takes = node.build<nn::EqualOp>({columns, node.scalar(node.i64Type(), stream)});
    rows = rows ? node.build<nn::WhereOp>({takes, own, rows}) : own;
  }
  return rows;
}

void rotaryEmbedding(NodeImporter &node, unsigned positionsInput, unsigned cosInput, unsigned sinInput,
                     bool hasStreams = false) {
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
    if (hasStreams) {
      *table = tableRowsOfStreams(node, *table, node.operand(positionsInput));
    } else if (node.has(positionsInput)) {
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

void contribRotaryEmbedding(NodeImporter &node, bool hasStreams) {
  if (node.floatAttribute("scale", 1.0) != 1.0)
    return node.fail("scale other than 1 is not supported");
  // Tokens of several sequences behind each other: a position for each says all that is to know of them.
  if (node.intAttribute("is_packed_batching", 0) != 0 && !hasStreams && node.rank(1) != 2)
    return node.fail("is_packed_batching needs a position for each token");
  rotaryEmbedding(node, 1, 2, 3, hasStreams);
}

} // namespace

void registerRotary(HandlerTable &table) {
  table.add("", "RotaryEmbedding", 3, 4, [](NodeImporter &node) { rotaryEmbedding(node, 3, 1, 2); });
  table.add("com.microsoft", "RotaryEmbedding", 4, 4,
            [](NodeImporter &node) { contribRotaryEmbedding(node, false); });
  table.add("com.microsoft", "MRotaryEmbedding", 4, 4,
            [](NodeImporter &node) { contribRotaryEmbedding(node, true); });
}

} // namespace fusion::onnx
