#include "codegen/schedule/PointwiseVectors.h"

#include "codegen/body/Printer.h"
#include "codegen/schedule/ElementGraph.h"
#include "ir/dialect/Formulas.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {

/// How the elements lie: the output's dims, neighbours merged where they are one run for every input, and
/// each input's strides over them.
struct VectorSpace {
  DimShape dims;
  llvm::SmallVector<DimShape> strides; ///< by input
  int64_t width = 1;                   ///< elements of a vector

  bool isUniform(unsigned input) const {
    return llvm::all_of(strides[input], [](const Dim &stride) { return stride == Dim(0); });
  }
  /// One element for a whole vector.
  bool isRepeated(unsigned input) const { return strides[input].back() == Dim(0); }
};

} // namespace

/// More a thread would need more registers than it has where f8 is converted in software.
static constexpr int64_t mostElements = 8;

/// The strides of a view broadcast to `shape`; nothing if it has a dim of another size.
static std::optional<DimShape> stridesOver(const DimShape &shape, const View &view) {
  if (view.shape.size() > shape.size())
    return std::nullopt;
  DimShape strides(shape.size(), Dim(0));
  for (size_t fromEnd = 1; fromEnd <= view.shape.size(); ++fromEnd) {
    const size_t from = view.shape.size() - fromEnd, to = shape.size() - fromEnd;
    if (view.shape[from].knownAtMostOne())
      continue;
    if (view.shape[from] != shape[to])
      return std::nullopt;
    strides[to] = view.strides[from];
  }
  return strides;
}

static bool broadcastsTo(const DimShape &value, const DimShape &shape) {
  return stridesOver(shape, View::contiguous({}, value)).has_value();
}

static bool isOne(const KernelContext &context, Value value) {
  return product(context.shape(value)) == Dim(1);
}

static bool isVectorOp(Operation *op, const DimShape &shape, const KernelContext &context) {
  if (auto constant = dyn_cast<nn::ConstantOp>(op))
    return constant.getValue().isSplat() || isOne(context, constant.getResult());
  if (auto dims = dyn_cast<nn::DimConstantOp>(op))
    return isOne(context, dims.getResult());
  if (nn::isRescale(op) &&
      (dtype(op->getOperand(0)) == DType::F64 ||
       llvm::any_of(llvm::drop_begin(op->getOperands()),
                    [&](Value scale) { return !isOne(context, scale); })))
    return false;
  return isa<nn::ScalarFormula>(op) &&
         broadcastsTo(context.shape(op->getResult(0)), shape);
}

/// 16 bytes of the widest value that differs within a vector, as far as alignment and the last dim allow.
static int64_t vectorWidth(const Region &region, const KernelContext &context, const VectorSpace &space) {
  size_t widest = 1;
  for (Value output : region.outputs)
    widest = std::max(widest, byteSize(dtype(output)));
  for (auto [number, input] : llvm::enumerate(region.inputs))
    if (!space.isRepeated(number))
      widest = std::max(widest, byteSize(dtype(input)));
  auto fits = [&](int64_t width) {
    if (space.dims.size() > 1 && !(space.dims.back().isStatic() && space.dims.back().value() % width == 0))
      return false;
    for (unsigned input = 0; input < region.inputs.size(); ++input)
      if (!space.isRepeated(input)) {
        if (!context.inputs[input].offset.knownMultipleOf(width))
          return false;
        for (const Dim &stride : llvm::drop_end(space.strides[input]))
          if (!stride.knownMultipleOf(width))
            return false;
      }
    return true;
  };
  int64_t width = std::min<int64_t>(mostElements, 16 / static_cast<int64_t>(widest));
  while (width > 1 && !fits(width))
    width /= 2;
  return width;
}

/// Nothing if the region's values do not lie as vectors: see vectorKernel.
static std::optional<VectorSpace> vectorSpace(const Region &region, const KernelContext &context) {
  const DimShape &shape = context.shape(region.outputs[0]);
  for (Operation *op : region.ops)
    if (!isVectorOp(op, shape, context))
      return std::nullopt;
  VectorSpace space;
  for (const View &view : context.inputs) {
    auto strides = stridesOver(shape, view);
    if (!strides)
      return std::nullopt;
    space.strides.push_back(std::move(*strides));
  }
  space.dims = shape;
  auto erase = [&](size_t dim) {
    space.dims.erase(space.dims.begin() + static_cast<ptrdiff_t>(dim));
    for (DimShape &strides : space.strides)
      strides.erase(strides.begin() + static_cast<ptrdiff_t>(dim));
  };
  for (size_t dim = space.dims.size(); dim-- > 0;)
    if (space.dims[dim] == Dim(1))
      erase(dim);
  for (size_t dim = space.dims.size(); dim-- > 1;)
    if (llvm::all_of(space.strides, [&](const DimShape &strides) {
          return strides[dim - 1] == strides[dim] * space.dims[dim];
        })) {
      space.dims[dim - 1] = space.dims[dim - 1] * space.dims[dim];
      for (DimShape &strides : space.strides)
        strides[dim - 1] = strides[dim];
      erase(dim);
    }
  if (space.dims.empty()) {
    space.dims.push_back(Dim(1));
    for (DimShape &strides : space.strides)
      strides.push_back(Dim(0));
  }
  for (const DimShape &strides : space.strides)
    if (!(strides.back() == Dim(0) || strides.back() == Dim(1)))
      return std::nullopt;
  // Rows of a length known only at run time would cost a division a vector.
  if (space.dims.size() > 1 && !space.dims.back().isStatic())
    return std::nullopt;
  space.width = vectorWidth(region, context, space);
  return space;
}

/// Measured on an H200: small blocks let loads begin while other blocks store, but no more than 0.8 blocks
/// begin in a nanosecond, which must move what the memory can. A second vector a thread only costs registers.
static uint32_t threadsOfBlock(const Region &region, const VectorSpace &space) {
  int64_t bytes = 0; // that a thread moves
  for (Value output : region.outputs)
    bytes += space.width * static_cast<int64_t>(byteSize(dtype(output)));
  for (auto [number, input] : llvm::enumerate(region.inputs))
    if (!space.isRepeated(number))
      bytes += space.width * static_cast<int64_t>(byteSize(dtype(input)));
  return bytes >= 48 ? 128 : 256;
}

/// A thread has read its vectors of all inputs before it writes its own of the outputs: one that lies like
/// output 0, and is read nowhere else, may lie where output 0 does.
static bool mayBeReplaced(unsigned input, const Region &region, const KernelContext &context,
                          const VectorSpace &space) {
  const View contiguous = View::contiguous({}, space.dims);
  auto liesAlike = [&](unsigned other) {
    return context.inputs[other].offset == Dim(0) && !isPacked(context.inputs[other]) &&
           space.strides[other] == contiguous.strides &&
           byteSize(dtype(region.inputs[other])) == byteSize(dtype(region.outputs[0]));
  };
  for (unsigned other = 0; other < region.inputs.size(); ++other)
    if (context.inputs[other].base == context.inputs[input].base && !liesAlike(other))
      return false;
  return true;
}

namespace {

/// The functor of a kernel whose values lie as vectors.
class VectorKernel {
public:
  VectorKernel(const Region &region, const KernelContext &context, const VectorSpace &space)
      : region(region), context(context), space(space), source(region, context.inputs),
        printer(graph, source.names) {}

  KernelDraft emit();

private:
  bool isConstant(unsigned input) const { return nn::isStored(context.inputs[input].base); }
  View viewOf(unsigned input) const {
    return {{}, context.inputs[input].offset, space.dims, space.strides[input]};
  }
  void compute(llvm::ArrayRef<scalar::Value> index);
  void hoist(const char *method, scalar::Level level);
  body::Code vector(int64_t width, llvm::ArrayRef<scalar::Value> index, const char *element);

  const Region &region;
  const KernelContext &context;
  const VectorSpace &space;
  scalar::Graph graph;
  body::KernelSource source;
  body::Printer printer;
  llvm::DenseMap<Value, scalar::Value> values;
  std::vector<body::Result> results;
  std::vector<scalar::Value> roots;
};

/// Kernel: of memory that no kernel writes. Row: of other memory, the same everywhere. Vector: one for a
/// vector.
void VectorKernel::compute(llvm::ArrayRef<scalar::Value> index) {
  for (auto [number, input] : llvm::enumerate(region.inputs)) {
    const auto at = static_cast<unsigned>(number);
    const scalar::Level level = isConstant(at) ? scalar::Level::Kernel : scalar::Level::Row;
    if (input.use_empty() && !llvm::is_contained(region.outputs, input))
      continue;
    values[input] =
        space.isUniform(at) ? graph.load(source.body.pointer(at),
                                         source.body.size(graph, context.inputs[number].offset), {}, level)
        : space.isRepeated(at)
            ? graph.load(source.body.pointer(at), source.body.address(graph, viewOf(at), index), {},
                         scalar::Level::Vector)
            : graph.input(fmt::format("element of in{}", number), dtype(input), scalar::Level::Element);
  }
  for (Operation *op : region.ops) {
    auto formula = dyn_cast<nn::ScalarFormula>(op);
    llvm::SmallVector<scalar::Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(values.lookup(operand));
    values[op->getResult(0)] =
        formula ? formula.formula(graph, operands) : constantValue(graph, source.body, op);
  }
  for (Value output : region.outputs) {
    results.push_back({values.lookup(output), dtype(output)});
    roots.push_back(results.back().value);
  }
}

void VectorKernel::hoist(const char *method, scalar::Level level) {
  body::Code code(2);
  for (const body::Member &member : printer.hoistMembers(roots, level, code))
    source.body.member(member.type, member.name);
  source.body.method(fmt::format("DEVICE void {}()", method), code);
}

body::Code VectorKernel::vector(int64_t width, llvm::ArrayRef<scalar::Value> index, const char *element) {
  body::Code code(2);
  printer.enterBlock();
  for (auto [number, input] : llvm::enumerate(region.inputs)) {
    const auto at = static_cast<unsigned>(number);
    if (!values.contains(input) || space.isUniform(at) || space.isRepeated(at))
      continue;
    const scalar::Value place = source.body.address(graph, viewOf(at), index);
    const scalar::Pointer from = source.body.pointer(at);
    const std::string type = body::spelling(from.element), name = source.names.fresh("v");
    const std::string pointer = from.packed ? fmt::format("packed<{}>({})", type, from.name) : from.name;
    code.line(fmt::format("const Vec<{0}, {1}> {2} = load_vec<{0}, {1}>({3} + {4});", type, width, name,
                          pointer, printer.value(place, code)));
    printer.bindVector(values.lookup(input), name, from.element);
  }
  const std::vector<std::string> vectors = printer.vectors(results, width, code);
  for (auto [number, output] : llvm::enumerate(region.outputs))
    code.line(fmt::format("store_vec<{}, {}>({} + {}, {});", body::spelling(dtype(output)), width,
                          source.body.output(static_cast<unsigned>(number)), element, vectors[number]));
  printer.leaveBlock();
  return code;
}

KernelDraft VectorKernel::emit() {
  const uint32_t threads = threadsOfBlock(region, space);
  const Dim total = product(context.shape(region.outputs[0])), count = total.ceilDiv(space.width);
  const bool flat = space.dims.size() == 1;
  auto coordinate = [&](const char *name) { return graph.input(name, DType::I64, scalar::Level::Vector); };
  llvm::SmallVector<scalar::Value> index;
  if (!flat)
    index = source.body.delinearize(graph, coordinate("row"),
                                    DimShape(space.dims.begin(), space.dims.end() - 1), /*narrow=*/true);
  index.push_back(coordinate(flat ? "element" : "column"));
  compute(index);
  source.include("pointwise.cuh");
  if (llvm::any_of(context.inputs, isPacked))
    source.include("bytes.cuh");
  source.config.set("threads", threads);
  source.config.set("width", space.width);
  hoist("constants", scalar::Level::Kernel);
  hoist("uniforms", scalar::Level::Row);
  const bool rest = !total.knownMultipleOf(space.width);
  if (flat) {
    source.config.set("rest", rest);
    source.body.method("DEVICE void vector(i64 element) const", vector(space.width, index, "element"));
    if (rest)
      source.body.method("DEVICE void element(i64 element) const", vector(1, index, "element"));
  } else {
    source.config.set("perRow", space.dims.back().value() / space.width);
    source.body.method("DEVICE void vector(i64 row, i64 column, i64 element) const",
                       vector(space.width, index, "element"));
  }
  KernelDraft draft = source.finish({.schedule = "pointwise",
                                     .function = flat ? "pointwise_flat" : "pointwise_rows",
                                     .arguments = source.size(flat ? total : count),
                                     .name = body::kernelName(region, context),
                                     .threads = threads});
  draft.gridX = count.ceilDiv(static_cast<int64_t>(threads));
  for (unsigned input = 0; input < region.inputs.size(); ++input)
    if (mayBeReplaced(input, region, context, space))
      draft.replaceable.push_back(input);
  return draft;
}

} // namespace

std::optional<KernelDraft> vectorKernel(const Region &region, const KernelContext &context) {
  const std::optional<VectorSpace> space = vectorSpace(region, context);
  if (!space)
    return std::nullopt;
  return VectorKernel(region, context, *space).emit();
}

} // namespace fusion
