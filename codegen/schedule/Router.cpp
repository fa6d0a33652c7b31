// The choice of experts and their weights in one kernel: softmax of the scores, top_k, the scores taken,
// divided by their sum or through a softmax of their own, and scalar ops.
#include "codegen/body/KernelSource.h"
#include "codegen/body/Printer.h"
#include "codegen/schedule/ElementGraph.h"
#include "codegen/schedule/Schedules.h"

#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {
constexpr int64_t mostScores = 1024, mostTaken = 32;
constexpr uint32_t threads = 128;

struct Routes {
  nn::SoftmaxOp softmax; ///< of all scores, or null
  nn::TopKOp topK;
  nn::GatherElementsOp taken;
  nn::SoftmaxOp weightSoftmax; ///< of those taken, or null
  nn::ReduceOp sum;            ///< of those taken, or null, with
  nn::DivOp quotient;
  SmallVector<Operation *> scalars; ///< one after the other
  Value scores, weight;             ///< the kernel's input; its result beside the choice
};

bool isLastAxis(int64_t axis, size_t rank) { return axis == -1 || axis == static_cast<int64_t>(rank) - 1; }

/// The scalar op after `value` in the region, of it and constants of one element.
Operation *nextScalar(const Region &region, Value value) {
  if (!value.hasOneUse())
    return nullptr;
  Operation *op = *value.user_begin();
  if (!llvm::is_contained(region.ops, op) || !isa<nn::ScalarFormula>(op) || nn::isRescale(op) ||
      op->getResult(0).getType().isIntOrIndexOrFloat())
    return nullptr;
  const bool isUnary = llvm::all_of(op->getOperands(), [&](Value operand) {
    return operand == value || (operand.getDefiningOp<nn::ConstantOp>() && constantScalar(operand));
  });
  return isUnary ? op : nullptr;
}

std::variant<Routes, std::string> analyse(const Region &region, const KernelContext &context) {
  Routes routes;
  SmallVector<Operation *> known;
  for (Operation *op : region.ops) {
    if (auto topK = dyn_cast<nn::TopKOp>(op)) {
      if (routes.topK)
        return std::string("more than one nn.top_k");
      routes.topK = topK;
    }
    if (auto taken = dyn_cast<nn::GatherElementsOp>(op))
      routes.taken = taken;
    if (isa<nn::ConstantOp>(op))
      known.push_back(op);
  }
  if (!routes.topK || !routes.taken)
    return std::string("no nn.top_k whose scores are taken");
  const Value scores = routes.topK.getX();
  const DimShape &shape = context.shape(scores), &chosen = context.shape(routes.topK.getY());
  if (routes.taken.getX() != scores || routes.taken.getIndices() != routes.topK.getY() ||
      !isLastAxis(routes.taken.getAxis(), shape.size()) || !isLastAxis(routes.topK.getAxis(), shape.size()))
    return std::string(
        "nn.gather_elements takes something else than the scores of nn.top_k along the last axis");
  if (dtype(scores) != DType::F32)
    return "scores of " + std::string(name(dtype(scores))) + ", not f32";
  if (shape.back().constant().value_or(INT64_MAX) > mostScores ||
      chosen.back().constant().value_or(INT64_MAX) > mostTaken)
    return fmt::format("more than {} scores, or {} taken, or as many as a run says", mostScores, mostTaken);
  known.append({routes.topK, routes.taken});
  routes.scores = scores;
  if (auto softmax = scores.getDefiningOp<nn::SoftmaxOp>();
      softmax && llvm::is_contained(region.ops, softmax.getOperation())) {
    if (!isLastAxis(softmax.getAxis(), shape.size()) || dtype(softmax.getX()) != DType::F32 ||
        softmax.getLog())
      return std::string("nn.softmax over another axis, not of f32, or its logarithm");
    routes.softmax = softmax;
    routes.scores = softmax.getX();
    known.push_back(softmax);
  }
  Value weight = routes.taken.getY();
  for (Operation *user : weight.getUsers()) {
    if (!llvm::is_contained(region.ops, user))
      continue;
    auto sum = dyn_cast<nn::ReduceOp>(user);
    auto softmax = dyn_cast<nn::SoftmaxOp>(user);
    if (softmax && weight.hasOneUse() && isLastAxis(softmax.getAxis(), shape.size()) && !softmax.getLog())
      routes.weightSoftmax = softmax;
    if (sum && sum.getKind() == "sum" && sum.getKeepdims() && sum.getAxes().size() == 1 &&
        isLastAxis(sum.getAxes()[0], shape.size()) && sum->hasOneUse())
      if (auto quotient = dyn_cast<nn::DivOp>(*sum->user_begin()); quotient && quotient.getLhs() == weight &&
                                                                   quotient.getRhs() == sum.getY() &&
                                                                   llvm::range_size(weight.getUses()) == 2) {
        routes.sum = sum;
        routes.quotient = quotient;
      }
  }
  if (routes.quotient) {
    known.append({routes.sum, routes.quotient});
    weight = routes.quotient.getResult();
  } else if (routes.weightSoftmax) {
    known.push_back(routes.weightSoftmax);
    weight = routes.weightSoftmax.getY();
  }
  while (Operation *op = nextScalar(region, weight)) {
    routes.scalars.push_back(op);
    known.push_back(op);
    weight = op->getResult(0);
  }
  routes.weight = weight;
  for (Operation *op : region.ops)
    if (!llvm::is_contained(known, op))
      return (op->getName().getStringRef() + " is none of the ops of a choice of experts").str();
  if (region.outputs.size() != 2 || !llvm::is_contained(region.outputs, routes.topK.getY()) ||
      !llvm::is_contained(region.outputs, weight))
    return std::string("other results than the choice and its weights");
  if (!llvm::is_contained(region.inputs, routes.scores))
    return std::string("the scores are computed in the region");
  return routes;
}

/// A kernel's functor, method by method.
class RouterWriter {
public:
  RouterWriter(const Region &region, const KernelContext &context, const Routes &routes)
      : region(region), context(context), routes(routes), source(region, context.inputs) {}

  KernelDraft write() {
    nn::TopKOp topK = routes.topK;
    const DimShape &shape = context.shape(topK.getX()), &chosen = context.shape(topK.getY());
    DimShape rows = shape;
    rows.back() = 1;
    source.config.set("threads", static_cast<int64_t>(threads));
    source.config.set("width", *shape.back().constant());
    source.config.set("count", *chosen.back().constant());
    source.config.set("softmax", bool(routes.softmax));
    source.config.set("Weights", "weights",
                      routes.quotient        ? "Weights::Divided"
                      : routes.weightSoftmax ? "Weights::Softmax"
                                             : "Weights::AsTheyAre");
    source.include("router.cuh");
    source.body.member("i64", "line");
    body::Code begin(2);
    begin.line("line = row;");
    source.body.method("DEVICE void begin_row(i64 row)", begin);
    writeElement(rows);
    writePut(rows, "DEVICE void put(i64 line, i64 rank, i64 place) const", topK.getY(),
             [](scalar::Graph &graph) { return graph.input("place", DType::I64, scalar::Level::Element); });
    writePut(rows, "DEVICE void put_weight(i64 line, i64 rank, f32 taken) const", routes.weight,
             [&](scalar::Graph &graph) { return weightOf(graph); });
    KernelDraft draft = source.finish({.schedule = "router",
                                       .function = "router",
                                       .arguments = source.size(product(rows)),
                                       .name = body::kernelName(region, context),
                                       .threads = threads});
    draft.gridX = product(rows).ceilDiv(threads / 32);
    return draft;
  }

private:
  void writeElement(const DimShape &rows) {
    scalar::Graph graph;
    body::Printer printer(graph, source.names);
    body::Code code(2);
    const auto input =
        static_cast<unsigned>(llvm::find(region.inputs, routes.scores) - region.inputs.begin());
    auto index =
        source.body.delinearize(graph, graph.input("line", DType::I64, scalar::Level::Element), rows);
    index.back() = graph.input("at", DType::I64, scalar::Level::Element);
    const scalar::Value element =
        graph.load(source.body.pointer(input), source.body.address(graph, context.inputs[input], index));
    const std::string text = printer.value(graph.convertRegister(DType::F32, element), code);
    code.line(fmt::format("return {};", text));
    source.body.method("DEVICE f32 element(i64 at) const", code);
  }

  scalar::Value weightOf(scalar::Graph &graph) {
    scalar::Value value = graph.input("taken", DType::F32, scalar::Level::Element);
    for (Operation *op : routes.scalars) {
      SmallVector<scalar::Value> operands;
      for (Value operand : op->getOperands())
        operands.push_back(operand.getDefiningOp<nn::ConstantOp>()
                               ? constantValue(graph, source.body, operand.getDefiningOp())
                               : value);
      value = cast<nn::ScalarFormula>(op).formula(graph, operands);
    }
    return value;
  }

  void writePut(const DimShape &rows, const std::string &signature, Value output,
                llvm::function_ref<scalar::Value(scalar::Graph &)> valueOf) {
    scalar::Graph graph;
    body::Printer printer(graph, source.names);
    body::Code code(2);
    const auto number = static_cast<unsigned>(llvm::find(region.outputs, output) - region.outputs.begin());
    auto index =
        source.body.delinearize(graph, graph.input("line", DType::I64, scalar::Level::Element), rows);
    index.back() = graph.input("rank", DType::I64, scalar::Level::Element);
    const scalar::Value place = source.body.address(graph, context.shape(output), index);
    const DType type = dtype(output);
    const body::Result result{graph.convert(type, valueOf(graph)), type};
    const std::string at = printer.value(place, code), stored = printer.stored(result, code);
    code.line(fmt::format("store({} + {}, {});", source.body.output(number), at, stored));
    source.body.method(signature, code);
  }

  const Region &region;
  const KernelContext &context;
  const Routes &routes;
  body::KernelSource source;
};

class RouterSchedule : public Schedule {
public:
  StringRef name() const override { return "router"; }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto found = analyse(region, context);
    if (auto *reason = std::get_if<std::string>(&found))
      return refusal(*reason);
    return SchedulePlan{[&region](const KernelContext &context) {
      auto found = analyse(region, context);
      return RouterWriter(region, context, std::get<Routes>(found)).write();
    }};
  }
};
} // namespace

const Schedule &routerSchedule() {
  static const RouterSchedule schedule;
  return schedule;
}

} // namespace fusion
