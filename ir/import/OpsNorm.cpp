// Norms: ONNX's own and the contrib ops, the latter with the residual add in front.
#include "ir/import/OpsShared.h"

#include <utility>

using namespace mlir;

namespace fusion::onnx {

namespace {

enum class NormKind { Rms, Layer };

struct Norm {
  NormKind kind;
  Value x, weight, bias; ///< bias may be null
  int64_t axis;          ///< not negative; all dims from it on are normalised
  double eps;
  Type scaleIn;    ///< null: the weight's type
  Type resultType; ///< null: that of x
};

/// A scale or bias as one vector over the normalised dims.
Value asVector(NodeImporter &node, Value weight, const DimShape &normalised, StringRef what) {
  DimShape shape = node.shapeOf(weight);
  while (shape.size() > normalised.size() && shape.front() == Dim(1))
    shape.erase(shape.begin());
  if (shape.size() > normalised.size()) {
    node.fail(what + " of " + shapeString(node.shapeOf(weight)) + " has more dims than are normalised");
    return {};
  }
  return node.reshape(node.expand(node.reshape(weight, shape), normalised), {product(normalised)});
}

/// Whether it differs along dims in front of those that are normalised.
bool isWider(NodeImporter &node, Value parameter, const DimShape &normalised) {
  if (!parameter)
    return false;
  const DimShape &shape = node.shapeOf(parameter);
  const auto first = llvm::find_if(shape, [](const Dim &dim) { return !(dim == Dim(1)); });
  return static_cast<size_t>(shape.end() - first) > normalised.size();
}

/// Takes a scale and a bias that differ from row to row out of the norm: they follow it.
struct RowParameters {
  RowParameters(NodeImporter &node, Norm &norm, const DimShape &normalised) {
    if (isWider(node, norm.weight, normalised)) {
      auto same = norm.weight.getDefiningOp<nn::ExpandOp>(); // exporters expand a one
      const bool isOne = same && !isWider(node, same.getX(), normalised);
      scale = isOne ? Value() : norm.weight;
      norm.weight = isOne ? same.getX() : node.scalar(NodeImporter::typeOf(norm.weight), 1);
    }
    if (scale || isWider(node, norm.bias, normalised))
      bias = std::exchange(norm.bias, Value());
  }
  Value scale, bias;
};

Value buildNorm(NodeImporter &node, Norm norm) {
  if (node.failed())
    return {};
  DimShape shape = node.shapeOf(norm.x), normalised(shape.begin() + norm.axis, shape.end());
  const RowParameters after(node, norm, normalised);
  DimShape rows(shape.begin(), shape.begin() + norm.axis);
  rows.push_back(product(normalised));
  SmallVector<Value> operands = {node.reshape(norm.x, rows),
                                 asVector(node, norm.weight, normalised, "scale")};
  SmallVector<NamedAttribute> attributes = {node.f32("eps", norm.eps)};
  if (norm.scaleIn && norm.scaleIn != NodeImporter::typeOf(norm.weight))
    attributes.push_back(node.type("scale_in", norm.scaleIn));
  if (norm.bias)
    operands.push_back(asVector(node, norm.bias, normalised, "bias"));
  Value y = norm.kind == NormKind::Rms ? node.build<nn::RmsNormOp>(operands, attributes, norm.resultType)
                                       : node.build<nn::LayerNormOp>(operands, attributes, norm.resultType);
  y = node.reshape(y, shape);
  if (after.scale)
    y = node.mul(y, after.scale);
  return after.bias ? node.add(y, after.bias) : y;
}

/// Sets the outputs with the mean and with 1 / the standard deviation, where somebody wants them, in f32.
void statistics(NodeImporter &node, const Norm &norm, std::optional<unsigned> meanOutput,
                unsigned inverseOutput) {
  bool wantsMean = meanOutput && node.wants(*meanOutput), wantsInverse = node.wants(inverseOutput);
  if (node.failed() || !(wantsMean || wantsInverse))
    return;
  auto axes = llvm::to_vector(llvm::seq<int64_t>(norm.axis, node.rankOf(norm.x)));
  Value x = node.cast(norm.x, node.f32Type());
  if (norm.kind == NormKind::Layer) {
    Value mean = node.reduce(x, "mean", axes);
    if (wantsMean)
      node.result(*meanOutput, mean);
    x = node.sub(x, mean);
  }
  Value variance = node.reduce(node.build<nn::SquareOp>(x), "mean", axes);
  node.result(inverseOutput,
              node.build<nn::RsqrtOp>(node.add(variance, node.scalar(node.f32Type(), norm.eps))));
}

void checkStash(NodeImporter &node) {
  Type stash = node.typeAttribute("stash_type", node.f32Type());
  if (stash != node.f32Type())
    node.fail("stash_type other than float32 is not supported");
}

int64_t axisAttribute(NodeImporter &node) { return node.axis(node.intAttribute("axis", -1), node.rank(0)); }

void layerNormalization(NodeImporter &node) {
  checkStash(node);
  Norm norm{NormKind::Layer,
            node.operand(0),
            node.operand(1),
            node.optionalOperand(2),
            axisAttribute(node),
            node.floatAttribute("epsilon", 1e-5),
            {},
            {}};
  node.result(0, buildNorm(node, norm));
  statistics(node, norm, 1, 2);
}

void rmsNormalization(NodeImporter &node) {
  checkStash(node);
  Value weight = node.operand(1);
  node.result(0, buildNorm(node, {NormKind::Rms,
                                  node.operand(0),
                                  weight,
                                  {},
                                  axisAttribute(node),
                                  node.floatAttribute("epsilon", 1e-5),
                                  {},
                                  NodeImporter::typeOf(weight)}));
}

/// In f32 throughout, rounded once.
void simplifiedLayerNormalization(NodeImporter &node) {
  checkStash(node);
  Value weight = node.operand(1);
  Norm norm{NormKind::Rms,
            node.operand(0),
            weight,
            {},
            axisAttribute(node),
            node.floatAttribute("epsilon", 1e-5),
            node.f32Type(),
            NodeImporter::typeOf(weight)};
  node.result(0, buildNorm(node, norm));
  statistics(node, norm, std::nullopt, 1);
}

/// Sum, then norm in f32 with one rounding. Output 3 is the sum.
void skipNorm(NodeImporter &node, NormKind kind, std::optional<unsigned> betaInput, unsigned biasInput) {
  Value sum = node.add(node.operand(0), node.operand(1));
  if (node.has(biasInput))
    sum = node.add(sum, node.operand(biasInput));
  Value weight = node.operand(2), beta = betaInput ? node.optionalOperand(*betaInput) : Value();
  if (node.failed())
    return;
  if (node.rankOf(sum) == 0)
    return node.fail("the input has no dims");
  Norm norm{kind,           sum, weight, beta, node.rankOf(sum) - 1, node.floatAttribute("epsilon", 1e-12),
            node.f32Type(), {}};
  node.result(0, buildNorm(node, norm));
  statistics(node, norm, 1, 2);
  node.result(3, sum);
}

} // namespace

void registerNorms(HandlerTable &table) {
  table.add("", "LayerNormalization", 2, 3, layerNormalization);
  table.add("", "RMSNormalization", 2, 2, rmsNormalization);
  // Runtimes put this op of theirs into ONNX's own domain, too.
  for (StringRef domain : {"", "com.microsoft"})
    table.add(domain, "SimplifiedLayerNormalization", 2, 2, simplifiedLayerNormalization);
  table.add("com.microsoft", "SkipSimplifiedLayerNormalization", 3, 4,
            [](NodeImporter &node) { skipNorm(node, NormKind::Rms, std::nullopt, 3); });
  table.add("com.microsoft", "SkipLayerNormalization", 3, 5,
            [](NodeImporter &node) { skipNorm(node, NormKind::Layer, 3, 4); });
}

} // namespace fusion::onnx
