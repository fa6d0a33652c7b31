// One thread per output element or, where the values lie in memory as vectors, per vector.
#include "codegen/body/Printer.h"
#include "codegen/schedule/ElementGraph.h"
#include "codegen/schedule/PointwiseVectors.h"
#include "codegen/schedule/Schedules.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {

constexpr uint32_t blockThreads = 256;
/// More blocks than any device runs at once; beyond it threads loop.
constexpr int64_t mostBlocks = 65536;
/// More a thread would need more registers than it has where f8 is converted in software.
constexpr int64_t mostElements = 8, mostAngles = 2;

bool sameDims(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

class PointwiseSchedule : public Schedule {
public:
  StringRef name() const override { return "pointwise"; }
  bool concerns(const Region &region) const override { return !holdsProducts(region); }
  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override;
};

std::optional<std::string> whyNot(const Region &region, const KernelContext &context) {
  if (region.outputs.empty())
    return "nothing leaves the region";
  for (Operation *op : region.ops)
    if (auto reason = ElementGraph::refuses(op, context))
      return reason;
  for (auto [index, output] : llvm::enumerate(region.outputs))
    if (!context.output(static_cast<unsigned>(index), output).isContiguous())
      return "a result in place in a larger buffer";
  const DimShape &shape = context.shape(region.outputs[0]);
  for (Value output : llvm::drop_begin(region.outputs))
    if (!sameDims(context.shape(output), shape))
      return "results of different shapes: " + shapeString(shape) + " and " +
             shapeString(context.shape(output));
  return std::nullopt;
}

/// Neighbours in the last dim that one thread computes, so that it splits its index once: 16 bytes of the
/// widest output; fewer where an element takes longer than its index, as angles of a few tokens do, for which
/// others wait.
int64_t neighboursPerThread(const Region &region, const DimShape &shape) {
  size_t widest = 1;
  for (Value output : region.outputs)
    widest = std::max(widest, byteSize(dtype(output)));
  int64_t width = std::min<int64_t>(holdsAny<nn::CosOp, nn::SinOp>(region) ? mostAngles : mostElements,
                                    16 / static_cast<int64_t>(widest));
  while (width > 1 && (shape.empty() || !shape.back().isStatic() || shape.back().value() % width != 0))
    width /= 2;
  return width;
}

KernelDraft emitIndexed(const Region &region, const KernelContext &context) {
  body::KernelSource source(region, context.inputs);
  scalar::Graph graph;
  DimShape shape = context.shape(region.outputs[0]);
  const Dim total = product(shape);
  const int64_t width = neighboursPerThread(region, shape);
  if (width > 1)
    shape.back() = Dim(shape.back().value() / width);
  const scalar::Value vector = graph.input("vector", DType::I64, scalar::Level::Vector);
  ElementIndex index = source.body.delinearize(graph, vector, shape);
  if (width > 1)
    index.back() = graph.add(graph.mul(index.back(), graph.index(width)),
                             graph.input("lane", DType::I64, scalar::Level::Element));
  ElementGraph elements(region, context, graph, source.body);
  std::vector<body::Result> results;
  for (Value output : region.outputs)
    results.push_back({elements.value(output, index), dtype(output)});

  body::Printer printer(graph, source.names);
  body::Code code(2);
  const std::vector<std::string> vectors = printer.vectors(results, width, code);
  for (auto [number, output] : llvm::enumerate(region.outputs))
    code.line(fmt::format("store_vec<{0}, {1}>({2} + vector * {1}, {3});", body::spelling(dtype(output)),
                          width, source.body.output(number), vectors[number]));
  source.include("pointwise.cuh");
  if (llvm::any_of(context.inputs, isPacked))
    source.include("bytes.cuh");
  source.config.set("threads", blockThreads);
  source.config.set("width", width);
  source.body.method("DEVICE void vector(i64 vector) const", code);
  KernelDraft draft = source.finish({.schedule = "pointwise",
                                     .function = "pointwise_indexed",
                                     .arguments = source.size(product(shape)),
                                     .name = body::kernelName(region, context),
                                     .threads = blockThreads});
  draft.gridX = Dim::min(total.ceilDiv(width * static_cast<int64_t>(blockThreads)), mostBlocks);
  return draft;
}

KernelDraft emit(const Region &region, const KernelContext &context) {
  const Dim total = product(context.shape(region.outputs[0]));
  std::optional<KernelDraft> vectors = vectorKernel(region, context);
  KernelDraft draft = vectors ? std::move(*vectors) : emitIndexed(region, context);
  int64_t operations =
      llvm::count_if(region.ops, [](Operation *op) { return op->hasTrait<nn::Pointwise>(); });
  draft.flops = total * Dim(operations);
  return draft;
}

Result<SchedulePlan> PointwiseSchedule::plan(const Region &region, const KernelContext &context) const {
  if (auto reason = whyNot(region, context))
    return refusal(*reason);
  SchedulePlan plan{[&region](const KernelContext &context) { return emit(region, context); }};
  plan.batchInvariant = true; // nothing is added up
  return plan;
}

} // namespace

const Schedule &pointwiseSchedule() {
  static const PointwiseSchedule schedule;
  return schedule;
}

} // namespace fusion
