// Contrib matrix products and collectives.
#include "ir/import/OpsShared.h"

#include "ir/base/BindSymbols.h"
#include "ir/dialect/Mesh.h"
#include "ir/import/Graph.h"

using namespace mlir;

namespace fusion::onnx {

Value packedWeight(NodeImporter &node, unsigned input, int64_t bits, const Shape &shape) {
  return packedWeight(node, input, bits == 4 ? DType::U4 : DType::U8, shape);
}

Value packedWeight(NodeImporter &node, unsigned input, DType type, const Shape &shape) {
  const int64_t bits = type == DType::U4 ? 4 : 8;
  GraphValue *value =
      node.failed() ? nullptr : node.owner().scope().find(node.proto().input(static_cast<int>(input)));
  if (!value || !value->tensor) {
    node.fail("input " + Twine(input) + " is not an initializer");
    return {};
  }
  const int64_t bytes = value->info.elements(), values = elementCount(shape);
  if (value->info.type != DType::U8 || value->info.code != FloatCode::None || bytes * 8 != values * bits) {
    node.fail("input " + Twine(input) + " of " + shapeString(value->info.shape) + " does not hold " +
              shapeString(shape) + " values of " + Twine(bits) + " bits");
    return {};
  }
  if (value->info.place) {
    Value weight = nn::WeightOp::create(
        node.builder(), node.location(), RankedTensorType::get(shape, mlirType(node.context(), type)),
        value->name, value->info.place->path, static_cast<int64_t>(value->info.place->offset), bytes);
    node.owner().setShape(weight, DimShape(shape.begin(), shape.end()));
    return weight;
  }
  auto contents = node.owner().tensors.load(*value->tensor, value->info);
  if (!contents) {
    node.fail(contents.error().message);
    return {};
  }
  Tensor unpacked = Tensor::uninitialized(type, shape);
  const auto *source = contents->as<uint8_t>();
  for (int64_t i = 0; i < values; ++i)
    unpacked.as<uint8_t>()[i] = bits == 8 ? source[i] : (source[i / 2] >> (i % 2 * 4)) & 15;
  return node.constant(unpacked);
}

namespace {

/// alpha * x, where x is a product in f32, rounded once to `type`.
Value scaled(NodeImporter &node, Value x, double alpha, Type type) {
  return node.cast(alpha == 1.0 ? x : node.mul(x, node.scalar(node.f32Type(), alpha)), type);
}

/// x with its first dim behind the other batch dims, if the attribute asks for it.
Value batchTransposed(NodeImporter &node, Value x, StringRef attribute) {
  if (node.intAttribute(attribute, 0) == 0 || node.failed())
    return x;
  auto perm = llvm::to_vector(llvm::seq<int64_t>(0, node.rankOf(x)));
  if (perm.size() > 2)
    std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  return node.transpose(x, perm);
}

Value fusedProduct(NodeImporter &node) {
  Value a = batchTransposed(node, node.operand(0), "transBatchA");
  Value b = batchTransposed(node, node.operand(1), "transBatchB");
  double alpha = node.floatAttribute("alpha", 1.0);
  Type type = node.inputType(0);
  Value product = node.build<nn::MatmulOp>({a, b},
                                           {node.flag("transpose_a", node.intAttribute("transA", 0) != 0),
                                            node.flag("transpose_b", node.intAttribute("transB", 0) != 0)},
                                           alpha == 1.0 ? type : node.f32Type());
  return scaled(node, product, alpha, type);
}

void fusedMatMul(NodeImporter &node) { node.result(0, fusedProduct(node)); }

/// GELU in its tanh form of the sum with a bias.
void gemmFastGelu(NodeImporter &node) {
  Value y = node.build<nn::MatmulOp>({node.operand(0), node.operand(1)});
  if (node.has(2))
    y = node.add(y, node.operand(2));
  node.result(0, node.build<nn::GeluOp>(y, node.text("approximate", "tanh")));
}

/// What the attribute `activation` names.
Value namedActivation(NodeImporter &node, Value x) {
  node.ignore({"activation_beta", "activation_gamma", "activation_axis"});
  return activation(node, x, node.stringAttribute("activation", ""),
                    node.floatAttribute("activation_alpha", 0.01));
}

void fusedGemm(NodeImporter &node) {
  double alpha = node.floatAttribute("alpha", 1.0), beta = node.floatAttribute("beta", 1.0);
  Type type = node.inputType(0), wide = node.f32Type();
  Value y = node.build<nn::MatmulOp>({node.operand(0), node.operand(1)},
                                     {node.flag("transpose_a", node.intAttribute("transA", 0) != 0),
                                      node.flag("transpose_b", node.intAttribute("transB", 0) != 0)},
                                     wide);
  y = scaled(node, y, alpha, wide);
  if (node.has(2) && beta != 0)
    y = node.add(y, scaled(node, node.cast(node.operand(2), wide), beta, wide));
  node.result(0, node.cast(namedActivation(node, y), type));
}

void allReduce(NodeImporter &node) { node.result(0, node.build<nn::AllReduceOp>(node.operand(0))); }

/// Says of the function that it is one of so many ranks'. False if it is known to be of another number.
bool markRanks(NodeImporter &node, int64_t ranks) {
  auto function = node.builder().getInsertionBlock()->getParent()->getParentOfType<func::FuncOp>();
  auto known = nn::ranksOf(function);
  if (known && *known != ranks) {
    node.fail("group_size is " + Twine(ranks) + ", another op's is " + Twine(*known));
    return false;
  }
  nn::setMesh(function, {nn::tensorAxis.str(), ranks});
  return true;
}

// Pattern: AllGather(x) -> all_reduce(concat(where(tp_rank == 0, x, -0), where(tp_rank == 1, x, -0), ...))
// Adding -0 changes no number, not even 0 and -0: the sum is what was gathered, to the last bit.
void allGather(NodeImporter &node) {
  const int64_t ranks = node.intAttribute("group_size", 1), most = 64;
  if (ranks < 1 || ranks > most)
    return node.fail("group_size is " + Twine(ranks) + ", not 1 to " + Twine(most));
  const int64_t axis = node.axis(node.intAttribute("axis", 0), node.rank(0));
  if (node.failed() || ranks == 1)
    return node.failed() ? void() : node.forward(0, 0);
  Type type = node.inputType(0);
  if (type.isInteger(1))
    return node.fail("gathering booleans across GPUs is not supported");
  if (!markRanks(node, ranks))
    return;
  Type index = node.i64Type();
  Value rank = node.dimConstant(Dim::symbol(std::string(rankSymbol)), {}, index);
  Value fill = node.scalar(type, isa<FloatType>(type) ? -0.0 : 0.0);
  SmallVector<Value> shards;
  for (int64_t shard = 0; shard < ranks; ++shard) {
    Value own = node.build<nn::EqualOp>({rank, node.scalar(index, static_cast<double>(shard))});
    shards.push_back(node.build<nn::WhereOp>({own, node.operand(0), fill}));
  }
  node.result(0, node.build<nn::AllReduceOp>(node.concat(shards, axis)));
}

} // namespace

Value activation(NodeImporter &node, Value x, StringRef name, double slope) {
  if (name.empty())
    return x;
  if (name == "Relu")
    return node.build<nn::ReluOp>(x);
  if (name == "Tanh")
    return node.build<nn::TanhOp>(x);
  if (name == "Sigmoid")
    return node.build<nn::SigmoidOp>(x);
  if (name == "LeakyRelu") {
    Type type = NodeImporter::typeOf(x);
    Value below = node.mul(x, node.scalar(type, slope));
    return node.build<nn::WhereOp>({node.build<nn::LessOp>({x, node.scalar(type, 0)}), below, x});
  }
  if (name == "Gelu" || name == "FastGelu")
    return node.build<nn::GeluOp>(x, node.text("approximate", name == "Gelu" ? "none" : "tanh"));
  node.fail("the activation '" + name + "' is not supported");
  return {};
}

namespace {

struct PackedShape {
  int64_t rows, depth, bits, block;
  int64_t blocks() const { return (depth + block - 1) / block; }
};

/// The zero points as one for each block: those of the file, or the middle of the range.
Value blockZeroPoints(NodeImporter &node, const PackedShape &shape) {
  DimShape perBlock = {shape.rows, shape.blocks()};
  if (!node.has(3)) {
    Type type = mlirType(node.context(), shape.bits == 4 ? DType::U4 : DType::U8);
    return node.expand(node.scalar(type, static_cast<double>(1 << (shape.bits - 1))), perBlock);
  }
  int64_t perByte = 8 / shape.bits, padded = (shape.blocks() + perByte - 1) / perByte * perByte;
  return node.slice(packedWeight(node, 3, shape.bits, {shape.rows, padded}), 1, 0, shape.blocks());
}

/// (packed - zero point) * scale with zero points that are floats, in f32 and rounded once.
Value shiftedByFloats(NodeImporter &node, const PackedShape &shape, Value packed, Value scales, Type type) {
  const Type f32 = node.f32Type();
  const DimShape split = {shape.rows, shape.blocks(), shape.block},
                 perBlock = {shape.rows, shape.blocks(), 1};
  Value values = node.reshape(node.cast(packed, f32), split);
  values = node.sub(values, node.reshape(node.cast(node.operand(3), f32), perBlock));
  values = node.mul(values, node.reshape(node.cast(scales, f32), perBlock));
  return node.reshape(node.cast(values, type), {shape.rows, shape.blocks() * shape.block});
}

void matMulNBits(NodeImporter &node) {
  PackedShape shape{node.intAttribute("N", 0), node.intAttribute("K", 0), node.intAttribute("bits", 4),
                    node.intAttribute("block_size", 0)};
  if (shape.rows <= 0 || shape.depth <= 0 || shape.block <= 0 || (shape.bits != 4 && shape.bits != 8))
    return node.fail("needs N, K, block_size, and bits of 4 or 8");
  if (node.has(4))
    return node.fail("g_idx is not supported");
  const int64_t prepacked = node.intAttribute("weight_prepacked", 0); // 1: for sm_80, 2: for sm_90
  if (prepacked < 0 || prepacked > 2 || (prepacked != 0 && shape.depth % shape.block != 0))
    return node.fail("weight_prepacked = " + Twine(prepacked) + " is not supported with K = " +
                     Twine(shape.depth) + " and block_size = " + Twine(shape.block));
  node.ignore({"accuracy_level"}); // what the activations may be rounded to
  Type type = node.inputType(0);
  int64_t columns = shape.blocks() * shape.block;
  Value scales = node.operand(2);
  scales = node.failed() ? Value() : node.reshape(scales, {shape.rows, shape.blocks()});
  Value weight;
  Value packed = prepacked != 0
                     ? prepackedWeight(node, 1, {1, shape.rows, columns, shape.bits, prepacked == 1})
                     : packedWeight(node, 1, shape.bits, {shape.rows, columns});
  packed = node.failed() ? Value() : node.reshape(packed, {shape.rows, columns});
  if (node.has(3) && llvm::isa_and_nonnull<FloatType>(node.inputType(3)))
    weight = node.slice(shiftedByFloats(node, shape, packed, scales, type), 1, 0, shape.depth);
  else
    weight = node.build<nn::DequantizeOp>(
        {node.slice(packed, 1, 0, shape.depth), scales, blockZeroPoints(node, shape)},
        {node.i64("axis", 1), node.i64("block_size", shape.block), node.flag("unrounded", true)}, type);
  Value y = node.build<nn::MatmulOp>({node.operand(0), weight}, node.flag("transpose_b", true), type);
  node.result(0, node.has(5) ? node.add(y, node.operand(5)) : y);
}

/// Inputs of one product with a weight in blocks without zero points.
struct BlockProduct {
  unsigned weight, scales, bias;
};

Value blockProduct(NodeImporter &node, Value x, const PackedShape &shape, const BlockProduct &from) {
  const Type type = node.inputType(0);
  Value scales = node.operand(from.scales);
  if (node.failed())
    return {};
  if (!(product(node.shapeOf(scales)) == Dim(shape.rows * shape.blocks()))) {
    node.fail("scales of " + shapeString(node.shapeOf(scales)) + " are not those of " + Twine(shape.rows) +
              " rows in " + Twine(shape.blocks()) + " blocks");
    return {};
  }
  const Value packed =
      packedWeight(node, from.weight, shape.bits, {shape.rows, shape.blocks() * shape.block});
  const Type codes = mlirType(node.context(), shape.bits == 4 ? DType::U4 : DType::U8);
  const Value middle = node.expand(node.scalar(codes, static_cast<double>(1 << (shape.bits - 1))),
                                   {shape.rows, shape.blocks()});
  const Value weight = node.build<nn::DequantizeOp>(
      {node.slice(packed, 1, 0, shape.depth), node.reshape(scales, {shape.rows, shape.blocks()}), middle},
      {node.i64("axis", 1), node.i64("block_size", shape.block), node.flag("unrounded", true)}, type);
  const Value y = node.build<nn::MatmulOp>({x, weight}, node.flag("transpose_b", true), type);
  return node.has(from.bias) ? node.add(y, node.operand(from.bias)) : y;
}

/// Several products of one input, which a norm may go before, and before that a sum, which is a result.
struct SharedInput {
  PackedShape shape{0, 0, 4, 0}; ///< of each weight but for its rows
  Value x;
};

std::optional<SharedInput> sharedInput(NodeImporter &node, unsigned sumOutput) {
  SharedInput shared;
  shared.shape.depth = node.intAttribute("K", 0);
  shared.shape.bits = node.intAttribute("bits", 4);
  shared.shape.block = node.intAttribute("block_size", 0);
  const double eps = node.floatAttribute("epsilon", node.opType() == "MatMulNBitsQkv" ? 1e-6 : 1e-5);
  node.ignore({"accuracy_level"});
  if (shared.shape.depth <= 0 || shared.shape.block <= 0 ||
      (shared.shape.bits != 4 && shared.shape.bits != 8))
    node.fail("needs K, block_size, and bits of 4 or 8");
  if (node.has(1) && !node.has(2))
    node.fail("a sum needs the norm's weight (input 2)");
  shared.x = node.operand(0);
  if (node.has(1)) {
    shared.x = node.add(shared.x, node.operand(1));
    node.result(sumOutput, shared.x);
  }
  if (node.has(2))
    shared.x = node.build<nn::RmsNormOp>({shared.x, node.operand(2)},
                                         {node.f32("eps", eps), node.type("scale_in", node.f32Type())});
  return node.failed() ? std::nullopt : std::optional(shared);
}

void matMulNBitsMlp(NodeImporter &node) {
  auto shared = sharedInput(node, 1);
  const std::string name = node.stringAttribute("activation", "");
  if (!shared)
    return;
  shared->shape.rows = node.intAttribute("N", 0);
  if (shared->shape.rows <= 0 || (name != "silu" && name != "swish"))
    return node.fail("needs N and the activation silu, not '" + name + "'");
  const Value gate = blockProduct(node, shared->x, shared->shape, {3, 4, 5}),
              up = blockProduct(node, shared->x, shared->shape, {6, 7, 8});
  node.result(0, node.mul(node.build<nn::SiluOp>(gate), up));
}

void matMulNBitsQkv(NodeImporter &node) {
  auto shared = sharedInput(node, 3);
  const int64_t queries = node.intAttribute("Nq", 0), keys = node.intAttribute("Nkv", 0);
  if (!shared)
    return;
  if (queries <= 0 || keys <= 0)
    return node.fail("needs Nq and Nkv");
  for (unsigned i = 0; i < 3; ++i) {
    shared->shape.rows = i == 0 ? queries : keys;
    node.result(i, blockProduct(node, shared->x, shared->shape, {3 + 3 * i, 4 + 3 * i, 5 + 3 * i}));
  }
}

/// x + y * gate, with one gate for each row; with a weight, the gate is sigmoid(gate . weight). Each of these
/// rounds.
void gatedAdd(NodeImporter &node) {
  Value gate = node.operand(2);
  if (node.has(3))
    gate = node.build<nn::SigmoidOp>(node.build<nn::MatmulOp>({gate, node.operand(3)}));
  if (node.failed())
    return;
  if (node.shapeOf(gate).empty() || node.owner().resolve(node.shapeOf(gate).back()) != Dim(1))
    return node.fail("a gate of " + shapeString(node.shapeOf(gate)) + " is not one for each row");
  node.result(0, node.add(node.operand(0), node.mul(node.operand(1), gate)));
}

} // namespace

void registerContrib(HandlerTable &table) {
  table.add("com.microsoft", "FusedMatMul", 2, 2, fusedMatMul);
  table.add("com.microsoft", "TransposeMatMul", 2, 2, fusedMatMul);
  table.add("com.microsoft", "FusedMatMulActivation", 2, 2,
            [](NodeImporter &node) { node.result(0, namedActivation(node, fusedProduct(node))); });
  table.add("com.microsoft", "GemmFastGelu", 2, 3, gemmFastGelu);
  table.add("com.microsoft", "FusedGemm", 2, 3, fusedGemm);
  table.add("com.microsoft", "GatedAdd", 3, 4, gatedAdd);
  table.add("com.microsoft", "AllReduce", 1, 1, allReduce);
  table.add("com.microsoft", "AllGather", 1, 1, allGather);
  table.add("com.microsoft", "MatMulNBits", 3, 6, matMulNBits);
  table.add("com.microsoft", "MatMulNBitsMlp", 1, 9, matMulNBitsMlp);
  table.add("com.microsoft", "MatMulNBitsQkv", 1, 12, matMulNBitsQkv);
}

} // namespace fusion::onnx
