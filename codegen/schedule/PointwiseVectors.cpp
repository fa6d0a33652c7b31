#include "codegen/schedule/PointwiseVectors.h"

#include "codegen/ScalarCode.h"
#include "codegen/schedule/VectorBody.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

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
  if (isa<nn::QuantizeOp, nn::DequantizeOp>(op) &&
      (dtype(op->getOperand(0)) == DType::F64 ||
       llvm::any_of(llvm::drop_begin(op->getOperands()),
                    [&](Value scale) { return !isOne(context, scale); })))
    return false;
  return (isScalarOp(op) || isa<nn::QuantizeOp, nn::DequantizeOp>(op)) &&
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

std::optional<VectorSpace> vectorSpace(const Region &region, const KernelContext &context) {
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

/// A thread has read its vectors of all inputs before it writes its own of the outputs: one that lies like output 0, and
/// is read nowhere else, may lie where output 0 does.
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

std::optional<KernelDraft> vectorKernel(const Region &region, const KernelContext &context) {
  const std::optional<VectorSpace> space = vectorSpace(region, context);
  if (!space)
    return std::nullopt;
  KernelWriter writer(region, context.inputs);
  const int64_t width = space->width;
  const uint32_t blockThreads = threadsOfBlock(region, *space);
  const Dim total = product(context.shape(region.outputs[0])), vectors = total.ceilDiv(width);
  const bool flat = space->dims.size() == 1;
  VectorBody body(region, context, writer, *space);
  body.uniforms(/*constants=*/true);
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  body.uniforms(/*constants=*/false);

  auto places = [&](llvm::ArrayRef<std::string> index) {
    llvm::SmallVector<std::string> result;
    for (unsigned input = 0; input < region.inputs.size(); ++input)
      result.push_back(
          writer.address(View{{}, context.inputs[input].offset, space->dims, space->strides[input]}, index));
    return result;
  };
  const std::string from = fmt::format("(i64)block_x() * {}", blockThreads),
                    widthText = std::to_string(width);
  if (flat) {
    writer.line(fmt::format("const i64 vector = {} + thread_x();", from));
    writer.line(fmt::format("const i64 element = vector * {};", width));
    const std::string all = writer.size(total);
    const bool rest = !total.knownMultipleOf(width);
    writer.line(rest ? fmt::format("if (element + {} <= {}) {{", width, all)
                     : fmt::format("if (element < {}) {{", all));
    body.emit(width, places({"element"}), "element");
    if (rest) {
      writer.line("} else {");
      writer.line(fmt::format("for (i64 last = element; last < {}; ++last) {{", all));
      body.emit(1, places({"last"}), "last");
      writer.line("}");
    }
    writer.line("}");
  } else {
    const int64_t perRow = space->dims.back().value() / width;
    writer.line(fmt::format("const i64 first = {};", from));
    writer.line(fmt::format("if (first + thread_x() < {}) {{", writer.size(vectors)));
    writer.line("// One division in 64 bits a block; those of its threads are of 32.");
    writer.line(fmt::format("const u32 ahead = (u32)(first % {}) + thread_x();", perRow));
    writer.line(fmt::format("const i64 row = first / {0} + ahead / {0}u;", perRow));
    writer.line(fmt::format("const i64 column = ahead % {}u * {};", perRow, width));
    auto index =
        writer.delinearize("row", DimShape(space->dims.begin(), space->dims.end() - 1), /*narrow=*/true);
    index.push_back("column");
    body.emit(width, places(index), fmt::format("(first + thread_x()) * {}", width));
    writer.line("}");
  }
  KernelDraft draft = writer.finish("pointwise", blockThreads);
  draft.gridX = vectors.ceilDiv(static_cast<int64_t>(blockThreads));
  for (unsigned input = 0; input < region.inputs.size(); ++input)
    if (mayBeReplaced(input, region, context, *space))
      draft.replaceable.push_back(input);
  return draft;
}

} // namespace fusion
