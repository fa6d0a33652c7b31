// Reductions and softmax.
#include "ir/import/NodeImporter.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// The axes to reduce, in range; nothing if the node means "none, and do nothing".
std::optional<std::vector<int64_t>> reducedAxes(NodeImporter &n) {
  int64_t rank = n.rank(0);
  std::vector<int64_t> axes = n.has(1) ? n.requireConstants(1, "axes") : n.intsAttribute("axes");
  if (axes.empty()) {
    if (n.intAttribute("noop_with_empty_axes", 0) != 0)
      return std::nullopt;
    for (int64_t i = 0; i < rank; ++i)
      axes.push_back(i);
  }
  for (int64_t &axis : axes)
    axis = n.axis(axis, rank);
  llvm::sort(axes);
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

Handler reduction(std::string kind) {
  return [kind](NodeImporter &n) {
    auto axes = reducedAxes(n);
    bool keepdims = n.intAttribute("keepdims", 1) != 0;
    bool elementwise = kind == "sum_square" || kind == "l1" || kind == "l2";
    if (!axes && !elementwise)
      return n.forward(0, 0);
    n.result(0, n.reduce(n.operand(0), kind, axes.value_or(std::vector<int64_t>()), keepdims));
  };
}

void logSum(NodeImporter &n) {
  auto axes = reducedAxes(n).value_or(std::vector<int64_t>());
  Value sum = n.reduce(n.operand(0), "sum", axes, n.intAttribute("keepdims", 1) != 0);
  n.result(0, n.build<nn::LogOp>(sum));
}

/// max + log(sum(exp(x - max)))
void logSumExp(NodeImporter &n) {
  auto axes = reducedAxes(n).value_or(std::vector<int64_t>());
  bool keepdims = n.intAttribute("keepdims", 1) != 0;
  Value x = n.operand(0), largest = n.reduce(x, "max", axes);
  Value sum = n.reduce(n.build<nn::ExpOp>(n.sub(x, largest)), "sum", axes);
  Value result = n.add(n.build<nn::LogOp>(sum), largest);
  DimShape shape;
  for (auto [index, dim] : llvm::enumerate(n.shape(0)))
    if (!llvm::is_contained(axes, static_cast<int64_t>(index)))
      shape.push_back(dim);
  n.result(0, keepdims ? result : n.reshape(result, shape));
}

Handler softmax(bool log) {
  return [log](NodeImporter &n) {
    DimShape shape = n.shape(0);
    bool flattens = n.opset() < 13; // the axis splits the dims into rows and columns
    int64_t given = n.intAttribute("axis", flattens ? 1 : -1);
    auto rank = static_cast<int64_t>(shape.size());
    if (flattens && given == rank) // rows of no dims: every element is 1
      return n.fail("axis " + Twine(given) + " is out of range for rank " + Twine(rank));
    int64_t axis = n.axis(given, rank);
    if (n.failed())
      return;
    Value x = n.operand(0);
    auto over = [&](Value value, int64_t at) {
      SmallVector<NamedAttribute> attributes{n.i64("axis", at)};
      if (log)
        attributes.push_back(n.flag("log", true));
      return n.build<nn::SoftmaxOp>(value, attributes);
    };
    if (!flattens || axis == rank - 1)
      return n.result(0, over(x, axis));
    std::span<const Dim> dims(shape);
    x = n.reshape(x, {product(dims.first(axis)), product(dims.subspan(axis))});
    n.result(0, n.reshape(over(x, 1), shape));
  };
}

} // namespace

void registerReductions(HandlerTable &table) {
  auto add = [&](StringRef name, Handler handler) { table.add("", name, 1, 2, std::move(handler)); };
  add("ReduceMean", reduction("mean"));
  add("ReduceSum", reduction("sum"));
  add("ReduceMax", reduction("max"));
  add("ReduceMin", reduction("min"));
  add("ReduceProd", reduction("prod"));
  add("ReduceSumSquare", reduction("sum_square"));
  add("ReduceL1", reduction("l1"));
  add("ReduceL2", reduction("l2"));
  add("ReduceLogSum", logSum);
  add("ReduceLogSumExp", logSumExp);
  table.add("", "Softmax", 1, 1, softmax(false));
  table.add("", "LogSoftmax", 1, 1, softmax(true));
}

} // namespace fusion::onnx
