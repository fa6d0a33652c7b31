// Constants and data movement.
#include "ir/base/Parallel.h"
#include "ir/reference/Support.h"

#include <cstring>

namespace fusion::reference {
namespace {

Result<Tensors> constant(const Call &call) {
  mlir::ElementsAttr value = llvm::cast<nn::ConstantOp>(call.op).getValue();
  if (!llvm::isa<mlir::DenseElementsAttr>(value))
    return problem("its value is not dense");
  return Tensors{toTensor(value)};
}

Result<Tensors> weight(const Call &call) {
  if (!call.options.weights)
    return problem("there are no weight files here");
  auto op = llvm::cast<nn::WeightOp>(call.op);
  auto rank = call.symbols.find(rankSymbol);
  auto tensor = call.options.weights->load(op, rank == call.symbols.end() ? 0 : rank->second);
  if (!tensor)
    return tensor.error();
  if (!op.getStarts())
    return Tensors{*tensor};
  auto starts = call.dims(*op.getStarts());
  if (!starts)
    return starts.error();
  const Shape sizes(tensorType(op.getY()).getShape()), strides = stridesOf(tensor->shape());
  int64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if ((*starts)[i] < 0 || (*starts)[i] > tensor->shape()[i] - sizes[i])
      return problem("{} from {} on is no part of {}", shapeString(sizes), shapeString(*starts),
                     shapeString(tensor->shape()));
    offset += (*starts)[i] * strides[i];
  }
  return Tensors{gatherStrided(*tensor, offset, strides, sizes)};
}

Result<Tensors> dimConstant(const Call &call) {
  auto values = call.dims(llvm::cast<nn::DimConstantOp>(call.op).getValues());
  if (!values)
    return values.error();
  Shape shape(tensorType(call.op->getResult(0)).getShape());
  Tensor integers = Tensor::of<int64_t>(DType::I64, shape, std::span<const int64_t>(*values));
  return Tensors{integers.convertedTo(call.resultType())};
}

Result<Tensors> iota(const Call &call) {
  auto shape = call.dims(llvm::cast<nn::IotaOp>(call.op).getSize());
  if (!shape)
    return shape.error();
  if (shape->front() < 0)
    return problem("size {} is negative", shape->front());
  Tensor result = Tensor::uninitialized(call.resultType(), *shape);
  dispatch(arithmeticOf(result.type()), [&](auto zero) {
    using T = decltype(zero);
    T start, step;
    loadElements(call.operand(0), 0, 1, &start);
    loadElements(call.operand(1), 0, 1, &step);
    std::vector<T> values(static_cast<size_t>(result.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_integral_v<T>)
        values[i] = static_cast<T>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step));
      else
        values[i] = start + static_cast<T>(i) * step;
    }
    storeElements(result, 0, result.size(), values.data());
  });
  return Tensors{result};
}

Result<Tensors> reshape(const Call &call) {
  auto shape = call.dims(llvm::cast<nn::ReshapeOp>(call.op).getShape());
  if (!shape)
    return shape.error();
  const Tensor &x = call.operand(0);
  bool negative = llvm::any_of(*shape, [](int64_t dim) { return dim < 0; });
  if (negative || elementCount(*shape) != x.size())
    return problem("{} cannot take the shape {}", shapeString(x.shape()), shapeString(*shape));
  return Tensors{x.reshaped(*shape)};
}

Result<Tensors> transpose(const Call &call) {
  return Tensors{transposed(call.operand(0), llvm::cast<nn::TransposeOp>(call.op).getPerm())};
}

Result<Tensors> expand(const Call &call) {
  auto shape = call.dims(llvm::cast<nn::ExpandOp>(call.op).getShape());
  if (!shape)
    return shape.error();
  const Tensor &x = call.operand(0);
  auto joint = broadcastShapes({x.shape(), *shape});
  bool negative = llvm::any_of(*shape, [](int64_t dim) { return dim < 0; });
  if (negative || !joint || *joint != *shape)
    return problem("{} cannot be expanded to {}", shapeString(x.shape()), shapeString(*shape));
  return Tensors{gatherStrided(x, 0, broadcastStrides(x.shape(), *shape), *shape)};
}

Result<Tensors> slice(const Call &call) {
  auto op = llvm::cast<nn::SliceOp>(call.op);
  auto starts = call.dims(op.getStarts()), sizes = call.dims(op.getSizes());
  if (!starts || !sizes)
    return (starts ? sizes : starts).error();
  const Tensor &x = call.operand(0);
  Shape strides = stridesOf(x.shape());
  int64_t offset = 0;
  for (size_t i = 0; i < sizes->size(); ++i) {
    int64_t start = (*starts)[i], size = (*sizes)[i], step = op.getSteps()[i], dim = x.shape()[i];
    int64_t last = 0;
    bool overflows = size < 0 || __builtin_mul_overflow(size - 1, step, &last) ||
                     __builtin_add_overflow(start, last, &last);
    if (overflows || (size > 0 && (start < 0 || start >= dim || last < 0 || last >= dim)))
      return problem("{} elements from {} in steps of {} are out of range for dim {} of size {}", size, start,
                     step, i, dim);
    offset += start * strides[i];
    strides[i] *= step;
  }
  return Tensors{gatherStrided(x, offset, strides, *sizes)};
}

Result<Tensors> concat(const Call &call) {
  auto axis = normalisedAxis(llvm::cast<nn::ConcatOp>(call.op).getAxis(), call.operand(0).rank());
  if (!axis)
    return axis.error();
  auto at = static_cast<size_t>(*axis);
  Shape shape = call.operand(0).shape();
  shape[at] = 0;
  for (const Tensor &part : call.operands) {
    Shape expected = shape;
    expected[at] = part.rank() == call.operand(0).rank() ? part.shape()[at] : 0;
    if (part.shape() != expected)
      return problem("{} and {} differ in more than dim {}", shapeString(call.operand(0).shape()),
                     shapeString(part.shape()), *axis);
  }
  for (const Tensor &part : call.operands)
    shape[at] += part.shape()[at];
  Tensor result = Tensor::uninitialized(call.resultType(), shape);
  int64_t outer = elementCount(std::span(shape).first(at));
  size_t slab = static_cast<size_t>(elementCount(std::span(shape).subspan(at))) * byteSize(result.type());
  size_t placed = 0;
  for (const Tensor &part : call.operands) {
    if (part.bytes() == 0)
      continue;
    size_t partBytes = part.bytes() / static_cast<size_t>(outer);
    parallelFor(outer, grainFor(static_cast<int64_t>(partBytes)), [&](int64_t begin, int64_t end) {
      for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row)
        std::memcpy(result.as<char>() + row * slab + placed, part.as<char>() + row * partBytes, partBytes);
    });
    placed += partBytes;
  }
  return Tensors{result};
}

/// Calls body(target index, source index, count) for each row of the box that `shape` and `from`, shifted by
/// `low`, have in common; indices and count in elements.
template <class Body>
void forCommonRows(const Shape &shape, const Shape &from, const Shape &low, Body body) {
  size_t rank = shape.size();
  Shape begin(rank), end(rank), targetStrides = stridesOf(shape), sourceStrides = stridesOf(from);
  for (size_t i = 0; i < rank; ++i) {
    begin[i] = std::max<int64_t>(0, low[i]);
    end[i] = std::min(shape[i], low[i] + from[i]);
    if (begin[i] >= end[i])
      return;
  }
  Shape index = begin;
  for (;;) {
    int64_t target = 0, source = 0;
    for (size_t i = 0; i < rank; ++i) {
      target += index[i] * targetStrides[i];
      source += (index[i] - low[i]) * sourceStrides[i];
    }
    body(target, source, rank == 0 ? int64_t{1} : end[rank - 1] - begin[rank - 1]);
    size_t i = rank == 0 ? 0 : rank - 1;
    while (i > 0 && ++index[i - 1] == end[i - 1]) {
      index[i - 1] = begin[i - 1];
      --i;
    }
    if (i == 0)
      return;
  }
}

Result<Tensors> pad(const Call &call) {
  auto op = llvm::cast<nn::PadOp>(call.op);
  auto low = call.dims(op.getLow()), high = call.dims(op.getHigh());
  if (!low || !high)
    return (low ? high : low).error();
  const Tensor &x = call.operand(0);
  Shape shape = x.shape();
  for (size_t i = 0; i < shape.size(); ++i) {
    shape[i] += (*low)[i] + (*high)[i];
    if (shape[i] < 0)
      return problem("dim {} becomes negative", i);
  }
  if (call.operand(1).type() != x.type())
    return problem("the value is {}, the tensor {}", name(call.operand(1).type()), name(x.type()));
  Tensor result = gatherStrided(call.operand(1), 0, Shape(shape.size(), 0), shape);
  size_t bytes = byteSize(x.type());
  forCommonRows(shape, x.shape(), *low, [&](int64_t target, int64_t source, int64_t count) {
    std::memcpy(result.as<char>() + static_cast<size_t>(target) * bytes,
                x.as<char>() + static_cast<size_t>(source) * bytes, static_cast<size_t>(count) * bytes);
  });
  return Tensors{result};
}

Result<Tensors> trilu(const Call &call) {
  auto op = llvm::cast<nn::TriluOp>(call.op);
  Tensor result = call.operand(0).clone();
  int64_t rows = result.shape()[static_cast<size_t>(result.rank() - 2)], columns = result.shape().back();
  if (result.size() == 0)
    return Tensors{result};
  int64_t k = std::clamp(static_cast<int64_t>(op.getK()), -rows, columns);
  size_t bytes = byteSize(result.type());
  parallelFor(result.size() / columns, grainFor(columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      // Kept are the columns from (upper) or before (lower) the boundary.
      int64_t diagonal = i % rows + k;
      int64_t first = op.getUpper() ? 0 : std::clamp<int64_t>(diagonal + 1, 0, columns);
      int64_t last = op.getUpper() ? std::clamp<int64_t>(diagonal, 0, columns) : columns;
      if (first < last)
        std::memset(result.as<char>() + static_cast<size_t>(i * columns + first) * bytes, 0,
                    static_cast<size_t>(last - first) * bytes);
    }
  });
  return Tensors{result};
}

} // namespace

llvm::ArrayRef<Entry> dataEntries() {
  static constexpr Entry entries[] = {
      {"nn.constant", constant}, {"nn.weight", weight},   {"nn.dim_constant", dimConstant},
      {"nn.iota", iota},         {"nn.reshape", reshape}, {"nn.transpose", transpose},
      {"nn.expand", expand},     {"nn.slice", slice},     {"nn.concat", concat},
      {"nn.pad", pad},           {"nn.trilu", trilu},
  };
  return entries;
}

} // namespace fusion::reference
