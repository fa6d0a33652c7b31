#include "test/recipes/ToyColumns.h"

#include "codegen/body/KernelSource.h"
#include "codegen/body/Printer.h"
#include "ir/dialect/Types.h"

#include <fmt/format.h>

using namespace fusion;

namespace {

constexpr uint32_t threads = 128;

nn::ReduceOp columnSum(const Region &region) {
  auto reduce = region.ops.size() == 1 ? llvm::dyn_cast<nn::ReduceOp>(region.ops.front()) : nn::ReduceOp();
  const bool sums = reduce && reduce.getKind() == "sum" && reduce.getAxes() == llvm::ArrayRef<int64_t>{0};
  return sums && !reduce.getKeepdims() && tensorType(reduce.getX()).getRank() == 2 ? reduce : nn::ReduceOp();
}

KernelDraft emit(const Region &region, const KernelContext &context) {
  const DType result = dtype(region.outputs[0]);
  const DimShape &shape = context.shape(region.inputs[0]);
  body::KernelSource source(region, context.inputs);
  scalar::Graph graph;
  body::Printer printer(graph, source.names);
  const scalar::Value row = graph.input("row", DType::I64, scalar::Level::Row);
  const scalar::Value column = graph.input("column", DType::I64, scalar::Level::Element);
  const scalar::Value sum = graph.input("sum", DType::F32, scalar::Level::Element);
  body::Code load(2), store(2);
  const scalar::Value place = source.body.address(graph, context.inputs[0], {row, column});
  load.line(fmt::format("return {};", printer.value(graph.load(source.body.pointer(0), place), load)));
  const scalar::Value rounded = graph.convert(result, sum);
  store.line(fmt::format("store({} + column, {});", source.body.output(0),
                         printer.stored({rounded, result}, store)));
  source.include(FUSION_SOURCE_DIR
                 "/test/recipes/toy_columns.cuh"); // one of the project is named without a folder
  source.config.set("threads", int64_t{threads});
  source.body.method("DEVICE f32 element(i64 row, i64 column) const", load);
  source.body.method("DEVICE void put(i64 column, f32 sum) const", store);
  KernelDraft draft = source.finish({.schedule = "toy_columns",
                                     .function = "toy_columns",
                                     .arguments = source.size(shape[0]) + ", " + source.size(shape[1]),
                                     .name = body::kernelName(region, context),
                                     .threads = threads});
  draft.gridX = shape[1].ceilDiv(int64_t{threads});
  draft.flops = product(shape);
  return draft;
}

class Columns : public Schedule {
public:
  llvm::StringRef name() const override { return "toy_columns"; }
  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    nn::ReduceOp reduce = columnSum(region);
    if (!reduce)
      return refusal("no sum over the first dim of a matrix");
    if (!isFloat(dtype(reduce.getX())) || dtype(reduce.getX()) == DType::F64)
      return refusal("a sum of " + std::string(fusion::name(dtype(reduce.getX()))));
    return SchedulePlan{[&region](const KernelContext &context) { return emit(region, context); }};
  }
};

} // namespace

const Schedule &toy::columnsSchedule() {
  static const Columns schedule;
  return schedule;
}
