// What the families of reference functions share. Private to ir/reference.
#pragma once

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"

#include <fmt/format.h>

#include <cmath>

namespace fusion::reference {

/// One evaluation: the op, its operands, and what its attributes need.
struct Call {
  mlir::Operation *op;
  llvm::ArrayRef<Tensor> operands;
  const SymbolValues &symbols;
  const ReferenceOptions &options;

  const Tensor &operand(unsigned index) const { return operands[index]; }
  bool hasOperand(unsigned index) const { return index < operands.size(); }
  /// Element type of a result.
  DType resultType(unsigned index = 0) const { return dtype(op->getResult(index)); }
  /// The values of a dims attribute.
  Result<Shape> dims(mlir::ArrayAttr attribute) const;
};

using Tensors = std::vector<Tensor>;
using Function = Result<Tensors> (*)(const Call &call);

struct Entry {
  llvm::StringRef name;
  Function function;
};
// The tables of the families.
llvm::ArrayRef<Entry> pointwiseEntries();
llvm::ArrayRef<Entry> binaryEntries();
llvm::ArrayRef<Entry> dataEntries();
llvm::ArrayRef<Entry> gatherEntries();
llvm::ArrayRef<Entry> reduceEntries();
llvm::ArrayRef<Entry> sampleEntries();
llvm::ArrayRef<Entry> normEntries();
llvm::ArrayRef<Entry> matmulEntries();
llvm::ArrayRef<Entry> attentionEntries();
llvm::ArrayRef<Entry> linearAttentionEntries();
llvm::ArrayRef<Entry> loopEntries();
llvm::ArrayRef<Entry> quantizeEntries();

/// Whether ops of that name say for single elements what they compute (nn.Pointwise and nn.ScalarFormula).
bool hasFormula(mlir::OperationName name);
/// What such an op computes, from its formula.
Result<Tensors> evaluateFormula(const Call &call);

/// An error without the op's name, which evaluate() puts in front.
template <class... Args>
Error problem(fmt::format_string<Args...> format, Args &&...args) {
  return badInput(fmt::format(format, std::forward<Args>(args)...));
}

/// In which C++ type a computation on elements of `type` happens.
enum class Arithmetic : uint8_t { Float, Double, Signed, Unsigned };
Arithmetic arithmeticOf(DType type);

/// Calls `body` with a zero of float, double, int64_t or uint64_t.
template <class Body>
auto dispatch(Arithmetic arithmetic, Body body) {
  switch (arithmetic) {
  case Arithmetic::Float:
    return body(float{});
  case Arithmetic::Double:
    return body(double{});
  case Arithmetic::Signed:
    return body(int64_t{});
  case Arithmetic::Unsigned:
    break;
  }
  return body(uint64_t{});
}
template <class T>
inline constexpr DType dtypeOfCpp = std::is_same_v<T, float>     ? DType::F32
                                    : std::is_same_v<T, double>  ? DType::F64
                                    : std::is_same_v<T, int64_t> ? DType::I64
                                                                 : DType::U64;

/// Elements [begin, begin + count) of a tensor as T, and back.
template <class T>
void loadElements(const Tensor &tensor, int64_t begin, int64_t count, T *target) {
  convert(tensor.type(), tensor.as<char>() + static_cast<size_t>(begin) * byteSize(tensor.type()),
          dtypeOfCpp<T>, target, static_cast<size_t>(count));
}
template <class T>
void storeElements(Tensor &tensor, int64_t begin, int64_t count, const T *source) {
  convert(dtypeOfCpp<T>, source, tensor.type(),
          tensor.as<char>() + static_cast<size_t>(begin) * byteSize(tensor.type()),
          static_cast<size_t>(count));
}

/// Rounds floats or doubles to `type` and back in place; nothing happens if `type` holds them all.
void roundElements(DType type, float *values, size_t count);
void roundElements(DType type, double *values, size_t count);

/// numpy broadcasting of concrete shapes.
Result<Shape> broadcastShapes(llvm::ArrayRef<Shape> shapes);
/// Row-major strides in elements.
Shape stridesOf(const Shape &shape);
/// Strides that read a tensor of shape `from` as one of shape `to`: 0 in broadcast dims. `from` must
/// broadcast.
Shape broadcastStrides(const Shape &from, const Shape &to);
/// Walks a strided view in row-major order. Neighbouring dims that step alike are taken as one.
class StridedView {
public:
  StridedView(const Shape &shape, const Shape &strides);
  /// Elements [begin, begin + count) of the view on `source`, made dense. Elements have `elementBytes` bytes;
  /// `source` points at the one with all indices 0.
  void copy(const void *source, size_t elementBytes, int64_t begin, int64_t count, void *target) const;

private:
  template <class Element>
  void copyAs(const Element *source, int64_t begin, int64_t count, Element *target) const;
  Shape dims, steps;
};

/// A view: for each index of `shape`, element offset + Σ index·stride of `source`, made dense.
Tensor gatherStrided(const Tensor &source, int64_t offset, const Shape &strides, const Shape &shape);
/// The operand's dims in the order of `perm`.
Tensor transposed(const Tensor &source, llvm::ArrayRef<int64_t> perm);
/// The tensor with `axis` moved to the end, and the inverse.
Tensor axisToBack(const Tensor &source, int64_t axis);
Tensor axisFromBack(const Tensor &source, int64_t axis);
/// A negative axis counts from the end; fails if out of range.
Result<int64_t> normalisedAxis(int64_t axis, int64_t rank);

/// The larger and the smaller of two numbers, of which neither is NaN: +0 is above -0, so that the order of
/// operands does not matter.
template <class T>
T largerOf(T a, T b) {
  return a == b ? (std::signbit(a) ? b : a) : a < b ? b : a;
}
template <class T>
T smallerOf(T a, T b) {
  return a == b ? (std::signbit(a) ? a : b) : b < a ? b : a;
}

/// A count of items a parallelFor range should have so that it is worth a thread, for `cost` elementary steps
/// each.
inline int64_t grainFor(int64_t cost) { return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, cost)); }

} // namespace fusion::reference
