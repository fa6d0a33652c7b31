// Ops along one axis that no row schedule takes: running sums, arg_max, top_k, the best groups, sample; and
// scattered writes.
#include "codegen/schedule/Router.h"
#include "codegen/schedule/RowWalk.h"
#include "codegen/schedule/Sample.h"
#include "codegen/schedule/ScatterReduce.h"

#include "ir/dialect/Sample.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace fusion {

namespace {

using scalar::Level, scan::RowWalk, scan::blockThreads, scan::mostBlocks;

/// Integers are added as u64, which wraps as their own type does.
KernelDraft emitCumSum(nn::CumSumOp op, const Region &region, const KernelContext &context) {
  RowWalk walk(region, context, static_cast<int64_t>(op.getAxis()));
  scalar::Graph &graph = walk.graph;
  const DType type = dtype(op.getY()), held = isFloat(type) ? scalar::registerType(type) : DType::U64;
  walk.source.config.set("reverse", op.getReverse());
  walk.source.config.set("exclusive", op.getExclusive());
  const scalar::Value sum = graph.input("sum", held, Level::Element);
  const std::string signature = fmt::format("DEVICE void put(i64 at, {} sum) const", body::spelling(held));
  return walk.finish("running_sum", held, graph.convertRegister(held, walk.element()),
                     {graph.convert(type, sum), type},
                     walk.source.body.address(graph, walk.shape, walk.index), signature.c_str());
}

/// The type in which elements are compared.
DType comparedAs(DType type) {
  return isFloat(type) ? scalar::registerType(type) : isSignedInteger(type) ? DType::I64 : DType::U64;
}

KernelDraft emitTopK(nn::TopKOp op, const Region &region, const KernelContext &context) {
  RowWalk walk(region, context, static_cast<int64_t>(op.getAxis()));
  scalar::Graph &graph = walk.graph;
  const DType held = comparedAs(dtype(op.getX())), result = dtype(op.getY());
  const DimShape &shape = context.shape(op.getY());
  llvm::SmallVector<scalar::Value> index = walk.index;
  index[walk.axis] = graph.input("rank", DType::I64, Level::Element);
  const scalar::Value place = graph.input("place", DType::I64, Level::Element);
  constexpr int64_t mostHeld = 16;
  const int64_t each = (context.shape(op.getX())[walk.axis].constant().value_or(INT32_MAX) + 31) / 32;
  walk.source.config.set("held", each <= mostHeld ? each : 0);
  return walk.finish("top_k", held, graph.convertRegister(held, walk.element()),
                     {graph.convert(result, place), result}, walk.source.body.address(graph, shape, index),
                     "DEVICE void put(i64 row, i64 rank, i64 place) const", &shape[walk.axis]);
}

KernelDraft emitLimitGroups(nn::LimitGroupsOp op, const Region &region, const KernelContext &context) {
  RowWalk walk(region, context, -1);
  walk.file = "largest_places.cuh";
  walk.source.config.set("width", tensorType(op).getShape().back());
  router::configureLimit(op, walk.source);
  const scalar::Value kept = walk.graph.input("kept", DType::F32, Level::Element);
  return walk.finish("limit_rows", DType::F32, walk.element(), {kept, DType::F32},
                     walk.source.body.address(walk.graph, walk.shape, walk.index),
                     "DEVICE void put(i64 at, f32 kept) const");
}

KernelDraft emitArgMax(nn::ArgMaxOp op, const Region &region, const KernelContext &context) {
  RowWalk walk(region, context, static_cast<int64_t>(op.getAxis()));
  scalar::Graph &graph = walk.graph;
  const DType held = comparedAs(dtype(op.getX())), result = dtype(op.getY());
  const scalar::Value place = graph.input("place", DType::I64, Level::Element);
  if (walk.isLong()) {
    walk.takeClusters();
    walk.readVectors();
  }
  return walk.finish(walk.isLong() ? "arg_max_of_block" : "arg_max", held,
                     graph.convertRegister(held, walk.element()), {graph.convert(result, place), result},
                     graph.input("row", DType::I64, Level::Row), "DEVICE void put(i64 row, i64 place) const");
}

/// Writes the updates over a copy of x; an index out of range writes nothing.
KernelDraft emitScatter(nn::ScatterNdOp op, const Region &region, const KernelContext &context) {
  body::KernelSource source(region, context.inputs);
  scalar::Graph graph;
  auto input = [&](Value value) {
    return static_cast<unsigned>(llvm::find(region.inputs, value) - region.inputs.begin());
  };
  const unsigned indices = input(op.getIndices()), updates = input(op.getUpdates());
  const DimShape &target = context.shape(op.getX()), &indexShape = context.shape(op.getIndices());
  const DimShape &updateShape = context.shape(op.getUpdates());
  const size_t leading = indexShape.size() - 1;
  auto index = source.body.delinearize(graph, graph.input("update", DType::I64, Level::Element), updateShape);
  llvm::SmallVector<scalar::Value> place;
  scalar::Value inside = graph.boolean(true);
  for (int64_t i = 0; i < indexShape.back().value(); ++i) {
    llvm::SmallVector<scalar::Value> entry(index.begin(), index.begin() + leading);
    entry.push_back(graph.index(i));
    const scalar::Value size = source.body.size(graph, target[static_cast<size_t>(i)]), zero = graph.index(0);
    const scalar::Value chosen = graph.convertRegister(
        DType::I64,
        graph.load(source.body.pointer(indices), source.body.address(graph, context.inputs[indices], entry)));
    const scalar::Value at =
        graph.select(graph.compare(scalar::Kind::Less, chosen, zero), graph.add(chosen, size), chosen);
    inside = graph.both(inside, graph.both(graph.compare(scalar::Kind::GreaterEqual, at, zero),
                                           graph.compare(scalar::Kind::Less, at, size)));
    place.push_back(at);
  }
  place.append(index.begin() + leading, index.end());
  const DType type = dtype(op.getX());
  const scalar::Value to = source.body.address(graph, target, place);
  const scalar::Value update =
      graph.load(source.body.pointer(updates), source.body.address(graph, context.inputs[updates], index));
  body::Printer printer(graph, source.names);
  const scalar::Value roots[] = {inside, to, update};
  printer.announce(roots);
  body::Code code(2);
  const std::string condition = printer.value(inside, code), where = printer.value(to, code);
  code.line(fmt::format("if ({}) {{", condition));
  printer.enterBlock();
  const std::string value = printer.stored({update, type}, code);
  code.line(fmt::format("store({} + {}, {});", source.body.output(0), where, value));
  printer.leaveBlock();
  code.line("}");
  source.include("pointwise.cuh");
  source.config.set("threads", blockThreads);
  source.body.method("DEVICE void vector(i64 update) const", code);
  KernelDraft draft = source.finish({.schedule = "scan",
                                     .function = "pointwise_indexed",
                                     .arguments = source.size(product(updateShape)),
                                     .name = body::kernelName(region, context),
                                     .threads = blockThreads});
  draft.gridX = Dim::min(product(updateShape).ceilDiv(static_cast<int64_t>(blockThreads)), mostBlocks);
  return draft;
}

class ScanSchedule : public Schedule {
public:
  StringRef name() const override { return "scan"; }
  bool concerns(const Region &region) const override { return llvm::any_of(region.ops, isTaken); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    if (auto reason = whyNot(region, context))
      return refusal(*reason);
    SchedulePlan plan{[&region](const KernelContext &context) { return emit(region, context); }};
    plan.batchInvariant = true; // a warp or a block has a row, by its length; sums of integers have no order
    if (llvm::isa<nn::SampleOp>(region.ops[0]))
      plan.split = [&region, context] { return alternativesOfSample(region, context); };
    if (auto scatter = llvm::dyn_cast<nn::ScatterNdOp>(region.ops[0]))
      plan.updatedInput =
          static_cast<unsigned>(llvm::find(region.inputs, scatter.getX()) - region.inputs.begin());
    return plan;
  }

private:
  static bool isTaken(Operation *op) {
    return llvm::isa<nn::CumSumOp, nn::ArgMaxOp, nn::TopKOp, nn::LimitGroupsOp, nn::SampleOp, nn::ScatterNdOp,
                     nn::ScatterReduceOp>(op);
  }
  static std::optional<std::string> whyNot(const Region &region, const KernelContext &context) {
    if (auto reason = readsPacked(region, context))
      return reason;
    if (region.ops.size() != 1)
      return "takes one op alone, not " + std::to_string(region.ops.size());
    if (!isTaken(region.ops[0]))
      return (region.ops[0]->getName().getStringRef() +
              " is none of cumsum, arg_max, top_k, limit_groups, sample, scatter_nd and scatter_reduce")
          .str();
    if (auto limit = llvm::dyn_cast<nn::LimitGroupsOp>(region.ops[0]))
      if (auto reason = router::limitRefusal(limit))
        return reason;
    if (region.outputs.size() != 1 || region.outputs[0].getDefiningOp() != region.ops[0])
      return "the op's result does not leave the region";
    return std::nullopt;
  }

  static KernelDraft emit(const Region &region, const KernelContext &context) {
    return llvm::TypeSwitch<Operation *, KernelDraft>(region.ops[0])
        .Case([&](nn::CumSumOp op) { return emitCumSum(op, region, context); })
        .Case([&](nn::TopKOp op) { return emitTopK(op, region, context); })
        .Case([&](nn::LimitGroupsOp op) { return emitLimitGroups(op, region, context); })
        .Case([&](nn::SampleOp) { return emitSample(region, context); })
        .Case([&](nn::ArgMaxOp op) { return emitArgMax(op, region, context); })
        .Case([&](nn::ScatterReduceOp op) { return emitScatterReduce(op, region, context); })
        .Case([&](nn::ScatterNdOp op) { return emitScatter(op, region, context); });
  }
};

} // namespace

const Schedule &scanSchedule() {
  static const ScanSchedule schedule;
  return schedule;
}

} // namespace fusion
