// One thread per output element or, where the values lie in memory as vectors, per vector.
#include "codegen/ScalarCode.h"
#include "codegen/schedule/Elements.h"
#include "codegen/schedule/PointwiseVectors.h"
#include "codegen/schedule/Schedules.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fusion {

namespace {

constexpr uint32_t blockThreads = 256;
/// More blocks than any device runs at once; beyond it threads loop.
constexpr int64_t mostBlocks = 65536;
/// More a thread would need more registers than it has where f8 is converted in software.
constexpr int64_t mostElements = 8;

bool sameDims(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

class PointwiseSchedule : public Schedule {
public:
  StringRef name() const override { return "pointwise"; }
  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override;
  KernelDraft emit(const Region &region, const KernelContext &context) const override;
};

std::optional<std::string> PointwiseSchedule::refuses(const Region &region,
                                                      const KernelContext &context) const {
  if (region.outputs.empty())
    return "nothing leaves the region";
  for (Operation *op : region.ops)
    if (auto reason = ElementCode::refuses(op, context))
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

/// A register value in the type of memory.
std::string narrowed(DType type, const std::string &value) {
  return sourceType(type) == registerType(type) ? value
                                                : ("from_f32<" + sourceType(type) + ">(" + value + ")").str();
}

/// Neighbours in the last dim that one thread computes, so that it splits its index once: 16 bytes of the
/// widest output.
int64_t neighboursPerThread(const Region &region, const DimShape &shape) {
  size_t widest = 1;
  for (Value output : region.outputs)
    widest = std::max(widest, byteSize(dtype(output)));
  int64_t width = std::min<int64_t>(mostElements, 16 / static_cast<int64_t>(widest));
  while (width > 1 && (shape.empty() || !shape.back().isStatic() || shape.back().value() % width != 0))
    width /= 2;
  return width;
}

KernelDraft emitIndexed(const Region &region, const KernelContext &context) {
  KernelWriter writer(region, context.inputs);
  DimShape shape = context.shape(region.outputs[0]);
  const Dim total = product(shape);
  const int64_t width = neighboursPerThread(region, shape);
  const std::string widthText = std::to_string(width);
  if (width > 1)
    shape.back() = Dim(shape.back().value() / width);
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  writer.line("const i64 threads = (i64)grid_dim_x() * block_dim_x();");
  writer.line("for (i64 vector = (i64)block_x() * block_dim_x() + thread_x(); vector < " +
              writer.size(product(shape)) + "; vector += threads) {");
  ElementIndex index = writer.delinearize("vector", shape);
  llvm::SmallVector<std::string> results;
  if (width > 1) {
    for (Value output : region.outputs) {
      results.push_back(writer.fresh("result"));
      writer.line("Vec<" + sourceType(dtype(output)) + ", " + widthText + "> " + results.back() + ";");
    }
    writer.line("#pragma unroll");
    writer.line("for (int lane = 0; lane < " + widthText + "; ++lane) {");
    writer.line("const i64 column = " +
                (index.back() == "0" ? "" : index.back() + " * " + widthText + " + ") + "lane;");
    index.back() = "column";
  }
  ElementCode code(region, context, writer);
  for (auto [number, output] : llvm::enumerate(region.outputs)) {
    DType type = dtype(output);
    std::string element = code.value(output, index);
    if (width == 1)
      writer.line(storeElement(type, writer.output(number), "vector", element) + ";");
    else
      writer.line(results[number] + "[lane] = " + narrowed(type, element) + ";");
  }
  if (width > 1) {
    writer.line("}");
    for (auto [number, output] : llvm::enumerate(region.outputs))
      writer.line("store_vec<" + sourceType(dtype(output)) + ", " + widthText + ">(" + writer.output(number) +
                  " + vector * " + widthText + ", " + results[number] + ");");
  }
  writer.line("}");
  KernelDraft draft = writer.finish("pointwise", blockThreads);
  draft.gridX = Dim::min(total.ceilDiv(width * static_cast<int64_t>(blockThreads)), mostBlocks);
  return draft;
}

KernelDraft PointwiseSchedule::emit(const Region &region, const KernelContext &context) const {
  const Dim total = product(context.shape(region.outputs[0]));
  std::optional<KernelDraft> vectors = vectorKernel(region, context);
  KernelDraft draft = vectors ? std::move(*vectors) : emitIndexed(region, context);
  int64_t operations = llvm::count_if(region.ops, [](Operation *op) { return isScalarOp(op); });
  draft.flops = total * Dim(operations);
  return draft;
}

} // namespace

const Schedule &pointwiseSchedule() {
  static const PointwiseSchedule schedule;
  return schedule;
}

} // namespace fusion
