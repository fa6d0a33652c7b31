// Contrib embeddings: BERT's with its norm, tables of quantised rows, and biases from positions.
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

#include <cmath>

using namespace mlir;

namespace fusion::onnx {

namespace {

Value rowsOf(NodeImporter &node, Value table, Value indices) {
  return node.build<nn::GatherOp>({table, indices}, node.i64("axis", 0));
}

/// The tables of an embedding of words, positions and segments, and its norm. `segments` may be null.
struct Embedding {
  Value words, positions, segments, gamma, beta;
};

/// Output 1 counts the ones in each row of the mask.
void countMask(NodeImporter &node, unsigned maskInput, Type type) {
  if (!node.wants(1) || node.failed())
    return;
  if (!node.has(maskInput))
    return node.result(1, node.expand(node.scalar(type, 0), {node.shape(0)[0]}));
  Value mask = node.operand(maskInput);
  if (node.failed())
    return;
  Value one = node.scalar(NodeImporter::typeOf(mask), 1);
  Value kept = node.cast(node.build<nn::EqualOp>({mask, one}), type);
  node.result(1, node.reduce(kept, "sum", {1}, false));
}

/// `positionsInput`: of the position ids; past the inputs where there are none.
void embed(NodeImporter &node, const Embedding &tables, unsigned maskInput, unsigned positionsInput) {
  if (node.failed() || node.rank(0) != 2)
    return node.fail("input_ids of " + shapeString(node.shape(0)) + " are not [batch, sequence]");
  const Dim sequence = node.shape(0)[1];
  Value words = rowsOf(node, tables.words, node.operand(0));
  Value positions = node.has(positionsInput) ? rowsOf(node, tables.positions, node.operand(positionsInput))
                                             : node.slice(tables.positions, 0, 0, sequence);
  Value sum = node.add(words, positions);
  if (tables.segments && node.has(1))
    sum = node.add(sum, rowsOf(node, tables.segments, node.operand(1)));
  SmallVector<NamedAttribute> attributes = {node.f32("eps", node.floatAttribute("epsilon", 1e-12))};
  if (!node.failed() && NodeImporter::typeOf(tables.gamma) != node.f32Type())
    attributes.push_back(node.type("scale_in", node.f32Type()));
  node.result(0, node.build<nn::LayerNormOp>({sum, tables.gamma, tables.beta}, attributes));
  node.ignore({"mask_index_type"});
  countMask(node, maskInput, mlirType(node.context(), DType::I32));
  node.result(2, sum);
}

void embedLayerNormalization(NodeImporter &node) {
  const Embedding tables = {node.operand(2), node.operand(3), node.optionalOperand(4), node.operand(5),
                            node.operand(6)};
  embed(node, tables, 7, 8);
}

void quantisedEmbedLayerNormalization(NodeImporter &node) {
  auto table = [&](unsigned value, unsigned scale, unsigned zeroPoint) {
    return node.has(value) ? dequantised(node, value, scale, zeroPoint) : Value();
  };
  embed(node, {table(2, 8, 13), table(3, 9, 14), table(4, 10, 15), table(5, 11, 16), table(6, 12, 17)}, 7,
        18);
}

} // namespace

Value unpackedHalves(NodeImporter &node, Value bytes) {
  DimShape one = node.shapeOf(bytes), all = one;
  if (node.failed())
    return {};
  one.push_back(1);
  all.back() = all.back() * Dim(2);
  const Type type = NodeImporter::typeOf(bytes);
  Value high = node.reshape(node.div(bytes, node.scalar(type, 16)), one);
  Value low = node.reshape(node.build<nn::AndOp>({bytes, node.scalar(type, 15)}), one);
  return node.reshape(node.concat({low, high}, static_cast<int64_t>(one.size()) - 1), all);
}

namespace {

/// Rows of a table that is quantised in blocks along its last dim; only the rows asked for are decoded.
void gatherBlockQuantized(NodeImporter &node) {
  const int64_t bits = node.intAttribute("bits", 4), block = node.intAttribute("block_size", 128);
  const DimShape data = node.shape(0), scales = node.shape(2);
  const auto rank = static_cast<int64_t>(data.size());
  const int64_t gatherAxis = node.axis(node.intAttribute("gather_axis", 0), rank);
  const int64_t axis = node.axis(node.intAttribute("quantize_axis", 1), rank);
  if (node.failed())
    return;
  const Type stored = node.inputType(0), type = node.inputType(2), f32 = node.f32Type();
  const bool isByte = stored == mlirType(node.context(), DType::U8), isPacked = isByte && bits == 4;
  if (llvm::isa<FloatType>(stored))
    return node.fail("tables of 8-bit or 4-bit floats are not supported");
  if (gatherAxis != 0 || rank != 2 || axis != 1)
    return node.fail("only rows of a matrix that is quantised along them are supported");
  if (isByte && bits != 4 && bits != 8)
    return node.fail("bits is " + Twine(bits) + ", not 4 or 8");
  constexpr int64_t largest = int64_t(1) << 32; // of a block, far beyond what there is
  if (block <= 0 || block > largest || !data[1].isStatic() || scales.size() != 2 || !scales[1].isStatic())
    return node.fail("block_size is " + Twine(block) + " for a table of " + shapeString(data));
  const int64_t columns = data[1].value() * (isPacked ? 2 : 1), blocks = scales[1].value();
  if (blocks != (columns + block - 1) / block)
    return node.fail("scales of " + shapeString(scales) + " do not fit a table of " + Twine(columns) +
                     " columns");
  const Value indices = node.operand(1);
  auto decoded = [&](unsigned input, int64_t count) {
    Value rows = rowsOf(node, node.operand(input), indices);
    return node.cast(
        isPacked ? node.slice(unpackedHalves(node, rows), node.rankOf(rows) - 1, 0, count) : rows, f32);
  };
  Value values = decoded(0, columns), factors = node.cast(rowsOf(node, node.operand(2), indices), f32);
  if (node.failed())
    return;
  // As [.., blocks, block]; a last block that is not full is filled up.
  DimShape shape = node.shapeOf(values), split = shape, perBlock = split;
  const int64_t missing = blocks * block - columns;
  if (missing != 0) {
    DimShape low(shape.size(), Dim(0)), high = low;
    high.back() = missing;
    values = node.build<nn::PadOp>({values, node.scalar(f32, 0)},
                                   {node.dims("low", low), node.dims("high", high)});
  }
  split.back() = perBlock.back() = blocks;
  split.push_back(block);
  perBlock.push_back(1);
  Value zero = node.has(3)                ? node.reshape(decoded(3, blocks), perBlock)
               : isByte                   ? node.scalar(f32, static_cast<double>(1 << (bits - 1)))
                                          : Value();
  values = node.reshape(values, split);
  if (zero)
    values = node.sub(values, zero);
  values = node.cast(node.mul(values, node.reshape(factors, perBlock)), type);
  if (node.failed())
    return;
  DimShape padded = shape;
  padded.back() = blocks * block;
  node.result(0,
              node.slice(node.reshape(values, padded), static_cast<int64_t>(shape.size()) - 1, 0, columns));
}

/// T5's buckets of distances: exact up to half of them, then by the logarithm.
void relativePositionBias(NodeImporter &node) {
  const DimShape table = node.shape(0), queries = node.requireKnown(1, "query_length"),
                 keys = node.requireKnown(2, "key_length");
  if (node.failed())
    return;
  if (table.size() != 2 || !table[0].isStatic() || queries.size() != 1 || keys.size() != 1)
    return node.fail("needs a table of a known number of buckets and one length each");
  const bool bothWays = node.intAttribute("is_bidirectional", 0) != 0;
  const int64_t distance = node.intAttribute("max_distance", 128);
  const int64_t buckets = bothWays ? table[0].value() / 2 : table[0].value(), exact = buckets / 2;
  if (exact < 1 || distance <= exact)
    return node.fail("max_distance is " + Twine(distance) + " for " + table[0].str() + " buckets");
  const Type i64 = node.i64Type(), f32 = node.f32Type();
  Value zero = node.scalar(i64, 0);
  Value offset =
      node.sub(countFrom(node, 0, keys[0]), node.reshape(countFrom(node, 0, queries[0]), {queries[0], 1}));
  Value bucket, far = bothWays ? node.build<nn::AbsOp>(offset)
                               : node.sub(zero, node.build<nn::MinOp>({offset, zero}));
  if (bothWays)
    bucket = node.build<nn::WhereOp>(
        {node.build<nn::GreaterOp>({offset, zero}), node.scalar(i64, static_cast<double>(buckets)), zero});
  Value ratio = node.div(node.cast(node.build<nn::MaxOp>({far, node.scalar(i64, 1)}), f32),
                         node.scalar(f32, static_cast<double>(exact)));
  Value share =
      node.div(node.build<nn::LogOp>(ratio),
               node.scalar(f32, std::log(static_cast<double>(distance) / static_cast<double>(exact))));
  Value steps = node.cast(node.mul(share, node.scalar(f32, static_cast<double>(buckets - exact))), i64);
  Value large = node.build<nn::MinOp>({node.add(steps, node.scalar(i64, static_cast<double>(exact))),
                                       node.scalar(i64, static_cast<double>(buckets - 1))});
  Value isNear = node.build<nn::LessOp>({far, node.scalar(i64, static_cast<double>(exact))});
  Value within = node.build<nn::WhereOp>({isNear, far, large});
  // The table lies column by column: what a head adds to the buckets is one row.
  Value rows = node.reshape(node.operand(0), {table[1], table[0]});
  Value bias =
      node.build<nn::GatherOp>({rows, bucket ? node.add(bucket, within) : within}, node.i64("axis", 1));
  node.result(0, node.failed() ? Value() : node.reshape(bias, {1, table[1], queries[0], keys[0]}));
}

/// Gates from the queries scale a bias from positions.
void gatedRelativePositionBias(NodeImporter &node) {
  const int64_t heads = node.intAttribute("num_heads", 0);
  if (node.has(6) || node.rank(0) != 3)
    return node.fail("tokens packed without padding (token_offset) are not supported");
  const DimShape weight = node.shape(3);
  auto half = weight.size() == 2 ? weight[1].dividedBy(2) : std::nullopt;
  if (node.failed() || !half)
    return node.fail("a gate of " + shapeString(weight) + " does not divide into two");
  const Type type = node.inputType(0);
  Value q = splitHeads(node, node.add(node.operand(0), node.operand(1)), heads);
  Value gates = node.add(node.build<nn::MatmulOp>({q, node.operand(3)}), node.operand(4));
  if (node.failed())
    return;
  DimShape shape = node.shapeOf(gates);
  shape.back() = 2;
  shape.push_back(*half);
  gates = node.build<nn::SigmoidOp>(node.reduce(node.reshape(gates, shape), "sum", {4}, false));
  Value u = node.slice(gates, 3, 0, 1), r = node.slice(gates, 3, 1, 1);
  Value scale = node.add(node.mul(u, node.sub(node.mul(r, node.operand(5)), node.scalar(type, 1))),
                         node.scalar(type, 2));
  node.result(0, node.mul(scale, node.operand(2)));
}

} // namespace

void registerEmbeddings(HandlerTable &table) {
  constexpr StringRef contrib = "com.microsoft";
  table.add(contrib, "EmbedLayerNormalization", 1, 9, embedLayerNormalization);
  table.add(contrib, "QEmbedLayerNormalization", 1, 18, quantisedEmbedLayerNormalization);
  table.add(contrib, "GatherBlockQuantized", 3, 4, gatherBlockQuantized);
  table.add(contrib, "RelativePositionBias", 3, 3, relativePositionBias);
  table.add(contrib, "GatedRelativePositionBias", 6, 7, gatedRelativePositionBias);
}

} // namespace fusion::onnx
