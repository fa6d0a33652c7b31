// Losses: the logarithm of the probability that a class is given.
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// -logarithms[n, target[n, …], …], weighted by the class and reduced.
Value likelihoodLoss(NodeImporter &n, Value logarithms) {
  const std::string reduction = n.stringAttribute("reduction", "mean");
  if (!llvm::is_contained({"mean", "sum", "none"}, reduction))
    n.fail("reduction '" + reduction + "' is not supported");
  Value target = n.cast(n.operand(1), n.i64Type());
  if (n.failed())
    return {};
  const Type type = NodeImporter::typeOf(logarithms);
  const DimShape shape = n.shapeOf(target);
  if (n.rank(0) < 2 || shape.size() + 1 != static_cast<size_t>(n.rank(0)) || (n.has(2) && n.rank(2) != 1)) {
    n.fail("wants scores [N, C, ...], targets [N, ...] and weights [C]");
    return {};
  }
  DimShape column = shape;
  column.insert(column.begin() + 1, Dim(1));
  Value kept;
  if (n.hasAttribute("ignore_index")) {
    Value ignored = n.scalar(n.i64Type(), static_cast<double>(n.intAttribute("ignore_index", 0)));
    Value isIgnored = n.build<nn::EqualOp>({target, ignored});
    kept = n.cast(n.build<nn::NotOp>(isIgnored), type);
    target = n.build<nn::WhereOp>({isIgnored, n.scalar(n.i64Type(), 0), target});
  }
  Value weight = kept;
  if (n.has(2)) {
    weight = n.build<nn::GatherOp>({n.operand(2), target}, n.i64("axis", 0));
    if (kept)
      weight = n.mul(weight, kept);
  }
  Value chosen =
      n.build<nn::GatherElementsOp>({logarithms, n.reshape(target, column)}, n.i64("axis", 1));
  Value loss = n.build<nn::NegOp>(n.reshape(chosen, shape));
  if (weight)
    loss = n.mul(loss, weight);
  if (reduction == "none")
    return loss;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < shape.size(); ++i)
    axes.push_back(static_cast<int64_t>(i));
  auto total = [&](Value x, StringRef kind) { return n.reduce(x, kind, axes, /*keepdims=*/false); };
  if (reduction == "mean" && weight)
    return n.div(total(loss, "sum"), total(weight, "sum"));
  return total(loss, reduction);
}

void crossEntropyLoss(NodeImporter &n) {
  Value logarithms =
      n.build<nn::SoftmaxOp>(n.operand(0), {n.i64("axis", 1), n.flag("log", true)});
  if (n.failed())
    return;
  n.result(0, likelihoodLoss(n, logarithms));
  n.result(1, logarithms);
}

} // namespace

void registerLosses(HandlerTable &table) {
  table.add("", "NegativeLogLikelihoodLoss", 2, 3,
            [](NodeImporter &n) { n.result(0, likelihoodLoss(n, n.operand(0))); });
  table.add("", "SoftmaxCrossEntropyLoss", 2, 3, crossEntropyLoss);
}

} // namespace fusion::onnx
