// One thread per output element; where all values lie alike in memory, one thread per 16 bytes or 8 elements.
#include "codegen/ScalarCode.h"
#include "codegen/schedule/Elements.h"
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

llvm::ArrayRef<Dim> withoutLeadingOnes(const DimShape &shape) {
  llvm::ArrayRef<Dim> dims = shape;
  while (!dims.empty() && dims.front() == Dim(1))
    dims = dims.drop_front();
  return dims;
}

bool sameDims(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

/// How a value lies under the linear index of the output.
struct LinearPlace {
  enum class Kind : uint8_t { Same, Repeated, Single } kind = Kind::Same;
  int64_t period = 0; ///< elements after which a Repeated value begins again
};

std::optional<LinearPlace> linearPlace(const DimShape &value, const DimShape &output) {
  if (product(value) == Dim(1))
    return LinearPlace{LinearPlace::Kind::Single, 0};
  llvm::ArrayRef<Dim> inner = withoutLeadingOnes(value), outer = withoutLeadingOnes(output);
  if (sameDims(inner, outer))
    return LinearPlace{};
  Dim period = product({inner.data(), inner.size()});
  if (inner.size() < outer.size() && sameDims(inner, outer.take_back(inner.size())) && period.isStatic() &&
      period.value() > 0)
    return LinearPlace{LinearPlace::Kind::Repeated, period.value()};
  return std::nullopt;
}

/// The places of all inputs when the region can be computed along one linear index.
std::optional<llvm::SmallVector<LinearPlace>> linearPlaces(const Region &region,
                                                           const KernelContext &context) {
  const DimShape &output = context.shape(region.outputs[0]);
  for (Operation *op : region.ops) {
    bool single = product(context.shape(op->getResult(0))) == Dim(1);
    if (auto constant = llvm::dyn_cast<nn::ConstantOp>(op)) {
      if (!constant.getValue().isSplat() && !single)
        return std::nullopt;
    } else if (llvm::isa<nn::DimConstantOp>(op)) {
      if (!single)
        return std::nullopt;
    } else if (!isScalarOp(op) || !linearPlace(context.shape(op->getResult(0)), output)) {
      return std::nullopt;
    }
  }
  llvm::SmallVector<LinearPlace> places;
  for (const View &view : context.inputs) {
    auto place = linearPlace(view.shape, output);
    if (!place || (place->kind != LinearPlace::Kind::Single && !view.isContiguous()))
      return std::nullopt;
    places.push_back(*place);
  }
  return places;
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

std::string between(const std::string &pointer, const std::string &offset) {
  return offset == "0" ? pointer : pointer + " + " + offset;
}

/// Elements in order, `width` at a time.
class LinearKernel {
public:
  LinearKernel(const Region &region, const KernelContext &context, llvm::ArrayRef<LinearPlace> places)
      : region(region), context(context), places(places), writer(region, context.inputs),
        total(product(context.shape(region.outputs[0]))), width(vectorWidth()) {}

  KernelDraft emit();
  int64_t elementsPerThread() const { return width; }

private:
  int64_t vectorWidth() const;
  void vectorLoop();
  void elementLoop(const std::string &first);
  std::string loadOne(unsigned input, const std::string &linear);

  const Region &region;
  const KernelContext &context;
  llvm::ArrayRef<LinearPlace> places;
  KernelWriter writer;
  Dim total;
  int64_t width;
};

int64_t LinearKernel::vectorWidth() const {
  size_t widest = 1;
  for (Value output : region.outputs)
    widest = std::max(widest, byteSize(dtype(output)));
  for (auto [place, input] : llvm::zip(places, region.inputs))
    if (place.kind != LinearPlace::Kind::Single)
      widest = std::max(widest, byteSize(dtype(input)));
  auto fits = [&](int64_t width) {
    return llvm::all_of(llvm::zip(places, context.inputs), [&](auto pair) {
      auto &[place, view] = pair;
      return place.kind == LinearPlace::Kind::Single ||
             (view.offset.knownMultipleOf(width) && place.period % width == 0);
    });
  };
  int64_t width = std::min<int64_t>(mostElements, 16 / static_cast<int64_t>(widest));
  while (width > 1 && !fits(width))
    width /= 2;
  return width;
}

std::string LinearKernel::loadOne(unsigned input, const std::string &linear) {
  const LinearPlace &place = places[input];
  const Dim &offset = context.inputs[input].offset;
  std::string at = place.kind == LinearPlace::Kind::Single     ? "0"
                   : place.kind == LinearPlace::Kind::Repeated ? linear + " % " + std::to_string(place.period)
                                                               : linear;
  return loadElement(dtype(region.inputs[input]),
                     between(writer.input(input), offset == Dim(0) ? "0" : writer.size(offset)), at);
}

void LinearKernel::elementLoop(const std::string &first) {
  writer.line("for (i64 element = " + first + "; element < " + writer.size(total) +
              "; element += threads) {");
  ElementCode code(region, context, writer);
  code.useLinearIndex([&](unsigned input, const std::string &linear) { return loadOne(input, linear); });
  for (auto [number, output] : llvm::enumerate(region.outputs)) {
    std::string result = code.value(output, {"element"});
    writer.line(storeElement(dtype(output), writer.output(number), "element", result) + ";");
  }
  writer.line("}");
}

void LinearKernel::vectorLoop() {
  const std::string widthText = std::to_string(width);
  auto vectorType = [&](Value value) {
    return "Vec<" + sourceType(dtype(value)).str() + ", " + widthText + ">";
  };
  auto arguments = [&](Value value) { return "<" + sourceType(dtype(value)).str() + ", " + widthText + ">"; };
  writer.line("for (i64 vector = thread; vector < " + writer.size(total) + " / " + widthText +
              "; vector += threads) {");
  writer.line("const i64 element = vector * " + widthText + ";");
  llvm::SmallVector<std::string> loaded(region.inputs.size());
  for (auto [number, input] : llvm::enumerate(region.inputs)) {
    const LinearPlace &place = places[number];
    if (place.kind == LinearPlace::Kind::Single || input.use_empty())
      continue;
    const Dim &offset = context.inputs[number].offset;
    std::string at = place.kind == LinearPlace::Kind::Repeated ? "element % " + std::to_string(place.period)
                                                               : std::string("element");
    if (!(offset == Dim(0)))
      at = writer.size(offset) + " + " + at;
    loaded[number] = writer.fresh("vector");
    writer.line("const " + vectorType(input) + " " + loaded[number] + " = load_vec" + arguments(input) + "(" +
                writer.input(number) + " + " + at + ");");
  }
  llvm::SmallVector<std::string> results;
  for (Value output : region.outputs) {
    results.push_back(writer.fresh("result"));
    writer.line(vectorType(output) + " " + results.back() + ";");
  }
  writer.line("#pragma unroll");
  writer.line("for (int lane = 0; lane < " + widthText + "; ++lane) {");
  ElementCode code(region, context, writer);
  code.useLinearIndex([&](unsigned input, const std::string &) {
    if (loaded[input].empty())
      return loadOne(input, "0");
    std::string element = loaded[input] + "[lane]";
    DType type = dtype(region.inputs[input]);
    return sourceType(type) == registerType(type) ? element : "to_f32(" + element + ")";
  });
  for (auto [output, result] : llvm::zip(region.outputs, results)) {
    DType type = dtype(output);
    std::string element = code.value(output, {"lane"});
    writer.line(result + "[lane] = " + narrowed(type, element) + ";");
  }
  writer.line("}");
  for (auto [number, output] : llvm::enumerate(region.outputs))
    writer.line("store_vec" + arguments(output) + "(" + writer.output(number) + " + element, " +
                results[number] + ");");
  writer.line("}");
}

KernelDraft LinearKernel::emit() {
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  writer.line("const i64 thread = (i64)block_x() * block_dim_x() + thread_x();");
  writer.line("const i64 threads = (i64)grid_dim_x() * block_dim_x();");
  std::string rest = "thread";
  if (width > 1) {
    vectorLoop();
    rest = writer.size(total) + " / " + std::to_string(width) + " * " + std::to_string(width) + " + thread";
  }
  if (width == 1 || !total.knownMultipleOf(width))
    elementLoop(rest);
  return writer.finish("pointwise", blockThreads);
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

KernelDraft emitIndexed(const Region &region, const KernelContext &context, int64_t width) {
  KernelWriter writer(region, context.inputs);
  DimShape shape = context.shape(region.outputs[0]);
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
  return writer.finish("pointwise", blockThreads);
}

KernelDraft PointwiseSchedule::emit(const Region &region, const KernelContext &context) const {
  int64_t perThread = 1;
  KernelDraft draft;
  if (auto places = linearPlaces(region, context)) {
    LinearKernel kernel(region, context, *places);
    perThread = kernel.elementsPerThread();
    draft = kernel.emit();
  } else {
    perThread = neighboursPerThread(region, context.shape(region.outputs[0]));
    draft = emitIndexed(region, context, perThread);
  }
  Dim total = product(context.shape(region.outputs[0]));
  draft.gridX = Dim::min(total.ceilDiv(perThread * static_cast<int64_t>(blockThreads)), mostBlocks);
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
