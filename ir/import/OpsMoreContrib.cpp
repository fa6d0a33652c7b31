// com.microsoft ops that stand for a few of ONNX's: sums with a softmax or a dropout behind them, integers of
// few bits, weights of bitsandbytes.
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Over all dims from `axis` on, as one.
void biasSoftmax(NodeImporter &n) {
  const int64_t axis = n.axis(n.intAttribute("axis", 1), n.rank(0));
  n.ignore({"is_inner_broadcast"}); // the shape of the bias says so too
  const DimShape shape = n.shape(0), bias = n.shape(1);
  if (n.failed())
    return;
  if (bias.size() > shape.size())
    return n.fail("a bias of " + shapeString(bias) + " for " + shapeString(shape));
  const Value x = n.add(n.operand(0), n.operand(1));
  if (axis == static_cast<int64_t>(shape.size()) - 1)
    return n.result(0, n.build<nn::SoftmaxOp>(x, n.i64("axis", axis)));
  const std::span<const Dim> dims(shape);
  const DimShape rows = {product(dims.first(axis)), product(dims.subspan(axis))};
  n.result(0, n.reshape(n.build<nn::SoftmaxOp>(n.reshape(x, rows), n.i64("axis", 1)), shape));
}

/// Whether a dropout is one of inference: fails elsewhere.
bool isInference(NodeImporter &n, unsigned trainingInput) {
  n.ignore({"seed"});
  if (n.has(trainingInput))
    if (auto training = n.requireConstants(trainingInput, "training_mode");
        !n.failed() && (training.size() != 1 || training[0] != 0))
      n.fail("training mode is not supported");
  return !n.failed();
}

void biasDropout(NodeImporter &n) {
  if (!isInference(n, 4))
    return;
  Value y = n.add(n.operand(0), n.operand(1));
  if (n.has(2))
    y = n.add(y, n.operand(2));
  n.result(0, y);
  if (n.wants(1) && !n.failed())
    n.result(1, n.expand(n.scalar(n.builder().getI1Type(), 1), n.shapeOf(y)));
}

void bitmaskDropout(NodeImporter &n) {
  if (isInference(n, 2))
    n.forward(0, 0);
}

void expandDims(NodeImporter &n) {
  const std::vector<int64_t> axis = n.requireConstants(1, "axis");
  if (n.failed())
    return;
  if (axis.size() != 1)
    return n.fail("axis is not one number");
  DimShape shape = n.shape(0);
  const int64_t at = n.axis(axis[0], static_cast<int64_t>(shape.size()) + 1);
  if (n.failed())
    return;
  shape.insert(shape.begin() + at, Dim(1));
  n.result(0, n.reshape(n.operand(0), shape));
}

/// The other inputs are for training.
void torchEmbedding(NodeImporter &n) {
  n.result(0, n.build<nn::GatherOp>({n.operand(0), n.operand(1)}, n.i64("axis", 0)));
}

/// An input less its zero point, in i32.
Value wide(NodeImporter &n, unsigned value, std::optional<unsigned> zeroPoint) {
  const Type i32 = mlirType(n.context(), DType::I32);
  Value x = n.cast(n.operand(value), i32);
  if (!zeroPoint || !n.has(*zeroPoint) || n.failed())
    return x;
  Value shift = n.cast(n.operand(*zeroPoint), i32);
  if (!n.failed() && product(n.shapeOf(shift)) == Dim(1))
    shift = n.reshape(shift, {});
  return n.sub(x, shift);
}

void mulInteger(NodeImporter &n) { n.result(0, n.mul(wide(n, 0, 1), wide(n, 2, 3))); }

/// Sums that are beyond 32 bits wrap.
void matMulInteger16(NodeImporter &n) {
  const Value y =
      n.build<nn::MatmulOp>({wide(n, 0, {}), wide(n, 1, {})}, {}, mlirType(n.context(), DType::I32));
  n.result(0, n.failed() ? Value() : y);
}

void reduceSumInteger(NodeImporter &n) {
  std::vector<int64_t> axes = n.intsAttribute("axes");
  if (axes.empty())
    llvm::append_range(axes, llvm::seq<int64_t>(0, n.rank(0)));
  for (int64_t &axis : axes)
    axis = n.axis(axis, n.rank(0));
  const bool keeps = n.intAttribute("keepdims", 1) != 0;
  n.result(0, n.failed() ? Value() : n.reduce(wide(n, 0, {}), "sum", axes, keeps));
}

/// q * cos + rotated q * sin, the same of k; the angles are given.
void gemmaRotaryEmbedding(NodeImporter &n) {
  if (!n.failed() && n.rank(0) != 3)
    return n.fail("angles of " + shapeString(n.shape(0)) + " are not [batch, sequence, size]");
  if (n.failed())
    return;
  const DimShape shape = n.shape(0);
  const Type type = n.inputType(1);
  auto table = [&](Value x) { return n.reshape(n.cast(x, type), {shape[0], Dim(1), shape[1], shape[2]}); };
  const Value cos = table(n.build<nn::CosOp>(n.operand(0))), sin = table(n.build<nn::SinOp>(n.operand(0)));
  for (unsigned i = 0; i < 2 && !n.failed(); ++i)
    n.result(i, n.add(n.mul(n.operand(1 + 2 * i), cos), n.mul(n.operand(2 + 2 * i), sin)));
}

/// Between all rows of two matrices.
void cDist(NodeImporter &n) {
  const std::string metric = n.stringAttribute("metric", "sqeuclidean");
  const DimShape a = n.shape(0), b = n.shape(1);
  if (n.failed())
    return;
  if (a.size() != 2 || b.size() != 2 || (metric != "sqeuclidean" && metric != "euclidean"))
    return n.fail("metric '" + metric + "' of " + shapeString(a) + " and " + shapeString(b) +
                  ": only sqeuclidean and euclidean of matrices are supported");
  const Value difference = n.sub(n.reshape(n.operand(0), {a[0], Dim(1), a[1]}), n.operand(1));
  const Value sum = n.reduce(n.build<nn::SquareOp>(difference), "sum", {2}, false);
  n.result(0, metric == "euclidean" ? n.build<nn::SqrtOp>(sum) : sum);
}

void isAllFinite(NodeImporter &n) {
  const bool nanOnly = n.intAttribute("isnan_only", 0) != 0, infOnly = n.intAttribute("isinf_only", 0) != 0;
  if (nanOnly && infOnly)
    return n.fail("isnan_only and isinf_only exclude each other");
  const Type i32 = mlirType(n.context(), DType::I32);
  Value wrong;
  for (unsigned i = 0; i < n.inputCount() && !n.failed(); ++i) {
    const Value x = n.operand(i);
    const Value isNan = infOnly ? Value() : n.build<nn::IsNanOp>(x);
    const Value isInf = nanOnly ? Value() : n.build<nn::IsInfOp>(x);
    const Value either = !isNan ? isInf : !isInf ? isNan : n.build<nn::OrOp>({isNan, isInf});
    std::vector<int64_t> axes;
    llvm::append_range(axes, llvm::seq<int64_t>(0, n.rank(i)));
    const Value any = axes.empty() ? n.cast(either, i32) : n.reduce(n.cast(either, i32), "max", axes, false);
    wrong = wrong ? n.build<nn::MaxOp>({wrong, any}) : any;
  }
  n.result(0, n.build<nn::EqualOp>({wrong, n.scalar(i32, 0)}));
}

/// All slices of `size` elements of a dim, `step` apart, along a new last dim.
void unfoldTensor(NodeImporter &n) {
  const int64_t axis = n.axis(n.intAttribute("dim", -1), n.rank(0)), size = n.intAttribute("size", 0),
                step = n.intAttribute("step", 1);
  const DimShape shape = n.shape(0);
  if (n.failed())
    return;
  const Dim have = shape[axis];
  constexpr int64_t most = int64_t(1) << 22;
  if (size < 1 || step < 1 || size > most || step > most || (have.isStatic() && have.value() < size))
    return n.fail("slices of " + Twine(size) + " elements, " + Twine(step) + " apart, of a dim of '" +
                  have.str() + "'");
  const Dim slices = (have - size).floorDiv(step) + 1;
  const Value starts = n.mul(countFrom(n, 0, slices), n.scalar(n.i64Type(), static_cast<double>(step)));
  const Value places = n.add(n.reshape(starts, {slices, Dim(1)}), countFrom(n, 0, size));
  std::vector<int64_t> perm; // [before…, slices, size, behind…]: the size goes last
  for (int64_t i = 0; i <= n.rank(0); ++i)
    if (i != axis + 1)
      perm.push_back(i);
  perm.push_back(axis + 1);
  n.result(0, n.transpose(n.build<nn::GatherOp>({n.operand(0), places}, n.i64("axis", axis)), perm));
}

/// What the codes of bitsandbytes stand for, as parts of a block's largest size.
constexpr float fp4Values[16] = {
    0.0F,  5.208333333e-03F,  0.66666667F,  1.0F,  0.33333333F,  0.5F,  0.16666667F,  0.25F,
    -0.0F, -5.208333333e-03F, -0.66666667F, -1.0F, -0.33333333F, -0.5F, -0.16666667F, -0.25F};
constexpr float nf4Values[16] = {-1.0F,
                                 -0.6961928009986877F,
                                 -0.5250730514526367F,
                                 -0.39491748809814453F,
                                 -0.28444138169288635F,
                                 -0.18477343022823334F,
                                 -0.09105003625154495F,
                                 0.0F,
                                 0.07958029955625534F,
                                 0.16093020141124725F,
                                 0.24611230194568634F,
                                 0.33791524171829224F,
                                 0.44070982933044434F,
                                 0.5626170039176941F,
                                 0.7229568362236023F,
                                 1.0F};

/// The weight is decoded when it is loaded.
void matMulBnb4(NodeImporter &n) {
  const int64_t rows = n.intAttribute("N", 0), depth = n.intAttribute("K", 0),
                block = n.intAttribute("block_size", 0), kind = n.intAttribute("quant_type", -1);
  const bool transposes = n.intAttribute("transB", 1) != 0;
  n.ignore({"training_mode"});
  constexpr int64_t most = int64_t(1) << 40;
  if (n.failed())
    return;
  if (rows <= 0 || depth <= 0 || block <= 0 || (kind != 0 && kind != 1) || rows > most / depth ||
      rows * depth % 2 != 0 || rows * depth % block != 0)
    return n.fail("needs N, K, a block_size that divides their product, and a quant_type of 0 or 1");
  const int64_t count = rows * depth;
  const Type type = n.inputType(0);
  // Of the two codes in a byte the first one is the high one.
  Value codes = packedWeight(n, 1, 4, {count / 2, 2});
  codes = n.slice(codes, 1, 1, 2, -1);
  if (n.failed() || !(product(n.shape(2)) == Dim(count / block)))
    return n.fail("absmax of " + shapeString(n.shape(2)) + " is not one for each of " + Twine(count / block) +
                  " blocks");
  const Value table = n.cast(n.constant(Tensor::of<float>(
                                 DType::F32, {16},
                                 std::vector<float>(kind == 0 ? std::begin(fp4Values) : std::begin(nf4Values),
                                                    kind == 0 ? std::end(fp4Values) : std::end(nf4Values)))),
                             type);
  const Value index = n.cast(n.reshape(codes, {count / block, block}), mlirType(n.context(), DType::I32));
  Value weight = n.build<nn::GatherOp>({table, index}, n.i64("axis", 0));
  weight = n.mul(weight, n.reshape(n.cast(n.operand(2), type), {count / block, 1}));
  weight = n.reshape(weight, {rows, depth});
  n.result(0, n.build<nn::MatmulOp>({n.operand(0), weight}, n.flag("transpose_b", transposes), type));
}

} // namespace

void registerMoreOfContrib(HandlerTable &table) {
  auto add = [&](StringRef op, unsigned least, unsigned most, Handler handler) {
    table.add("com.microsoft", op, least, most, std::move(handler));
  };
  add("BiasSoftmax", 2, 2, biasSoftmax);
  add("BiasDropout", 2, 5, biasDropout);
  add("BitmaskDropout", 1, 3, bitmaskDropout);
  add("ExpandDims", 2, 2, expandDims);
  add("MulInteger", 1, 4, mulInteger);
  add("MatMulInteger16", 2, 2, matMulInteger16);
  add("ReduceSumInteger", 1, 1, reduceSumInteger);
  add("GemmaRotaryEmbedding", 5, 5, gemmaRotaryEmbedding);
  add("CDist", 2, 2, cDist);
  add("IsAllFinite", 1, HandlerTable::anyNumber, isAllFinite);
  add("UnfoldTensor", 1, 1, unfoldTensor);
  add("MatMulBnb4", 3, 3, matMulBnb4);
  add("TorchEmbedding", 2, 4, torchEmbedding);
}

} // namespace fusion::onnx
