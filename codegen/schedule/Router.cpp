// The choice of experts and their weights in one kernel: softmax of the scores, top_k, the scores taken,
// divided by their sum or through a softmax of their own, and scalar ops before and after. For few rows the
// matmul that makes the scores is part of it.
#include "codegen/schedule/Router.h"
#include "codegen/schedule/ElementGraph.h"
#include "codegen/schedule/Schedules.h"

#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {
constexpr int64_t mostScores = 1024, mostTaken = 32, mostGroups = 32;

bool isLastAxis(int64_t axis, size_t rank) { return axis == -1 || axis == static_cast<int64_t>(rank) - 1; }

/// Whether `op` is a scalar op of the region, of `value` and constants of one element.
bool isUnary(const Region &region, Operation *op, Value value) {
  return llvm::is_contained(region.ops, op) && isa<nn::ScalarFormula>(op) && !nn::isRescale(op) &&
         !op->getResult(0).getType().isIntOrIndexOrFloat() &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           return operand == value || (operand.getDefiningOp<nn::ConstantOp>() && constantScalar(operand));
         });
}

/// The scalar op after `value` in the region, of it and constants of one element.
Operation *nextScalar(const Region &region, Value value) {
  if (!value.hasOneUse())
    return nullptr;
  Operation *op = *value.user_begin();
  return isUnary(region, op, value) ? op : nullptr;
}

/// The operand that alone `value` is computed from, by one scalar op. Who knows all its readers asks.
Value scalarOperand(const Region &region, Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  for (Value operand : op->getOperands())
    if (!operand.getDefiningOp<nn::ConstantOp>() && isUnary(region, op, operand))
      return operand;
  return {};
}

bool isScoreType(DType type) { return type == DType::F32 || type == DType::F16 || type == DType::BF16; }

/// A bias of each score, f32 as they are.
std::optional<std::string> biasRefusal(const Region &region, const KernelContext &context,
                                       const Routes &routes) {
  nn::AddOp shift = routes.shift;
  const Value scores = routes.scores;
  if (shift.getLhs() != scores && shift.getRhs() != scores)
    return std::string("the choice is not by the scores that are taken and a bias");
  if (!shift->hasOneUse())
    return std::string("the scores with their bias have other readers");
  if (!llvm::is_contained(region.inputs, routes.bias))
    return std::string("a bias of the scores that is computed in the region");
  const DimShape &bias = context.shape(routes.bias);
  if (bias.empty() || bias.back() != context.shape(scores).back() || product(bias) != bias.back() ||
      context.shape(shift) != context.shape(scores))
    return std::string("what is added to the scores is not a number of each expert");
  if (dtype(routes.bias) != DType::F32 || dtype(scores) != DType::F32)
    return std::string("scores with a bias that are not f32");
  return std::nullopt;
}

std::optional<std::string> limitRefusal(const Routes &routes) {
  nn::LimitGroupsOp limit = routes.limit;
  if (llvm::range_size(limit->getUses()) != (routes.limitsWeights ? 2 : 1))
    return std::string("the scores of the best groups have other readers");
  return router::limitRefusal(limit);
}

/// Takes the matmul and what is between it and the scores out of the region, where they are in it.
std::optional<std::string> takeProducts(const Region &region, const KernelContext &context, Routes &routes,
                                        ArrayRef<Operation *> known) {
  if (llvm::is_contained(region.inputs, routes.scores))
    return std::nullopt;
  Region products;
  products.anchor = region.anchor;
  products.pattern = region.pattern;
  products.inputs = region.inputs;
  products.outputs = {routes.scores};
  routes.rest = region;
  routes.rest.ops.clear();
  routes.rest.inputs.push_back(routes.scores);
  for (Operation *op : region.ops) {
    const bool isConstant = isa<nn::ConstantOp, nn::DimConstantOp>(op);
    if (isConstant || !llvm::is_contained(known, op))
      products.ops.push_back(op);
    if (isConstant || llvm::is_contained(known, op))
      routes.rest.ops.push_back(op);
  }
  if (llvm::none_of(products.ops, llvm::IsaPred<nn::MatmulOp>))
    return std::string("the scores are computed in the region, and not by nn.matmul");
  KernelContext own = context;
  own.outputs = {};
  if (auto plan = matmulSchedule().plan(products, own); !plan)
    return "the scores are computed in the region: " + plan.error().message;
  routes.products = std::move(products);
  return std::nullopt;
}

} // namespace

std::optional<std::string> router::limitRefusal(nn::LimitGroupsOp limit) {
  if (dtype(limit.getX()) != DType::F32)
    return std::string("groups of elements that are not f32");
  if (static_cast<int64_t>(limit.getGroups()) > mostGroups ||
      tensorType(limit).getShape().back() > mostScores)
    return fmt::format("more than {} groups, or {} elements", mostGroups, mostScores);
  return std::nullopt;
}

std::variant<Routes, std::string> analyseRoutes(const Region &region, const KernelContext &context) {
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
  const DimShape &shape = context.shape(routes.topK.getX()), &chosen = context.shape(routes.topK.getY());
  Value chosenFrom = routes.topK.getX();
  routes.scores = routes.taken.getX();
  if (auto limit = chosenFrom.getDefiningOp<nn::LimitGroupsOp>();
      limit && llvm::is_contained(region.ops, limit.getOperation())) {
    routes.limit = limit;
    routes.limitsWeights = routes.scores == chosenFrom;
    chosenFrom = limit.getX();
    known.push_back(limit);
    if (auto reason = limitRefusal(routes))
      return *reason;
    if (routes.limitsWeights)
      routes.scores = chosenFrom;
  }
  const Value scores = routes.scores;
  if (auto add = chosenFrom.getDefiningOp<nn::AddOp>();
      add && chosenFrom != scores && llvm::is_contained(region.ops, add.getOperation())) {
    routes.shift = add;
    routes.bias = add.getLhs() == scores ? add.getRhs() : add.getLhs();
    known.push_back(add);
    if (auto reason = biasRefusal(region, context, routes))
      return *reason;
  }
  if ((!routes.shift && chosenFrom != scores) || routes.taken.getIndices() != routes.topK.getY() ||
      !isLastAxis(routes.taken.getAxis(), shape.size()) || !isLastAxis(routes.topK.getAxis(), shape.size()))
    return std::string(
        "nn.gather_elements takes something else than the scores of nn.top_k along the last axis");
  if (!isScoreType(dtype(scores)))
    return "scores of " + std::string(name(dtype(scores)));
  if (shape.back().constant().value_or(INT64_MAX) > mostScores ||
      chosen.back().constant().value_or(INT64_MAX) > mostTaken)
    return fmt::format("more than {} scores, or {} taken, or as many as a run says", mostScores, mostTaken);
  known.append({routes.topK, routes.taken});
  if (auto softmax = scores.getDefiningOp<nn::SoftmaxOp>();
      softmax && llvm::is_contained(region.ops, softmax.getOperation())) {
    if (!isLastAxis(softmax.getAxis(), shape.size()) || dtype(softmax.getX()) != DType::F32 ||
        dtype(scores) != DType::F32 || softmax.getLog())
      return std::string("nn.softmax over another axis, not of f32, or its logarithm");
    routes.softmax = softmax;
    routes.scores = softmax.getX();
    known.push_back(softmax);
  }
  // nn.top_k, or what is in front of it, and nn.gather_elements
  const size_t readers = routes.softmax || routes.limitsWeights ? 1 : 2;
  while (Value operand = scalarOperand(region, routes.scores)) {
    const bool isFirst = routes.before.empty();
    if (!isScoreType(dtype(operand)) || llvm::range_size(routes.scores.getUses()) != (isFirst ? readers : 1))
      break;
    routes.before.insert(routes.before.begin(), routes.scores.getDefiningOp());
    known.push_back(routes.scores.getDefiningOp());
    routes.scores = operand;
  }
  Value weight = routes.taken.getY();
  for (Operation *user : weight.getUsers()) {
    if (!llvm::is_contained(region.ops, user))
      continue;
    auto sum = dyn_cast<nn::ReduceOp>(user);
    auto softmax = dyn_cast<nn::SoftmaxOp>(user);
    if (softmax && weight.hasOneUse() && isLastAxis(softmax.getAxis(), shape.size()) && !softmax.getLog())
      routes.weightSoftmax = softmax;
    if (sum && dtype(scores) == DType::F32 && sum.getKind() == "sum" && sum.getKeepdims() &&
        sum.getAxes().size() == 1 && isLastAxis(sum.getAxes()[0], shape.size()) && sum->hasOneUse()) {
      auto least = dyn_cast_if_present<nn::AddOp>(nextScalar(region, sum.getY()));
      const Value divisor = least ? least.getResult() : sum.getY();
      if (auto quotient =
              divisor.hasOneUse() ? dyn_cast<nn::DivOp>(*divisor.user_begin()) : nn::DivOp();
          quotient && quotient.getLhs() == weight && quotient.getRhs() == divisor &&
          llvm::range_size(weight.getUses()) == 2) {
        routes.sum = sum;
        routes.least = least;
        routes.quotient = quotient;
      }
    }
  }
  if (routes.quotient) {
    known.append({routes.sum, routes.quotient});
    if (routes.least)
      known.push_back(routes.least);
    weight = routes.quotient.getResult();
  } else if (routes.weightSoftmax) {
    known.push_back(routes.weightSoftmax);
    weight = routes.weightSoftmax.getY();
  }
  while (Operation *op = nextScalar(region, weight)) {
    routes.after.push_back(op);
    known.push_back(op);
    weight = op->getResult(0);
  }
  routes.weight = weight;
  if (auto reason = takeProducts(region, context, routes, known))
    return *reason;
  for (Operation *op : region.ops)
    if (!routes.products && !llvm::is_contained(known, op))
      return (op->getName().getStringRef() + " is none of the ops of a choice of experts").str();
  if (region.outputs.size() != 2 || !llvm::is_contained(region.outputs, routes.topK.getY()) ||
      !llvm::is_contained(region.outputs, weight))
    return std::string("other results than the choice and its weights");
  return routes;
}

/// The plan of a region with the matmul: alternatives by the number of rows.
static std::vector<PlannedAlternative> withProducts(const Region &region, const KernelContext &context,
                                                    const Routes &routes) {
  auto whole = [region](const KernelContext &context) { return router::emitWithProduct(region, context); };
  const Region &rest = routes.rest;
  auto route = [rest](const KernelContext &context) { return router::emitAlone(rest, context); };
  std::vector<PlannedAlternative> all;
  const std::optional<SizeRange> few =
      context.batchInvariant ? std::nullopt : router::rowsWithProduct(region, context);
  if (few)
    all.push_back(
        alternativesFor(few->size.constant() ? ArrayRef<SizeRange>() : ArrayRef(*few), region, whole)
            .front());
  if (few && few->size.constant())
    return all;
  KernelContext own = context;
  own.outputs = {};
  for (PlannedAlternative &alternative :
       matmulSchedule().plan(*routes.products, own)->alternatives(*routes.products)) {
    if (few && !alternative.when.empty()) {
      SizeRange &range = alternative.when.front();
      if (range.most <= few->most)
        continue;
      range.least = std::max(range.least, few->most + 1);
    }
    alternative.kernels.push_back({rest, route});
    all.push_back(std::move(alternative));
  }
  return all;
}

namespace {
class RouterSchedule : public Schedule {
public:
  StringRef name() const override { return "router"; }
  bool concerns(const Region &region) const override { return holdsAny<nn::TopKOp>(region); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto found = analyseRoutes(region, context);
    if (auto *reason = std::get_if<std::string>(&found))
      return refusal(*reason);
    const Routes &routes = std::get<Routes>(found);
    SchedulePlan plan{[&region, together = routes.products.has_value()](const KernelContext &context) {
      return together ? router::emitWithProduct(region, context) : router::emitAlone(region, context);
    }};
    plan.batchInvariant = true; // a warp has a row
    if (!routes.products)
      return plan;
    plan.split = [&region, context, routes] { return withProducts(region, context, routes); };
    plan.multiplied = routes.products;
    plan.multiplies = true;
    return plan;
  }
};
} // namespace

const Schedule &routerSchedule() {
  static const RouterSchedule schedule;
  return schedule;
}

} // namespace fusion
