// Constants, ranges, fills and pass-through ops.
#include "ir/import/FloatSizes.h"
#include "ir/import/Graph.h"
#include "ir/import/Known.h"
#include "ir/import/OpsShared.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace fusion::onnx {

namespace {

constexpr int64_t mostKnown = 1024;

template <class T>
Tensor rowOf(DType type, const std::vector<T> &values) {
  return Tensor::of<T>(type, {static_cast<int64_t>(values.size())}, values);
}

void constant(NodeImporter &n) {
  if (n.proto().attribute_size() != 1)
    return n.fail("needs exactly one attribute");
  const auto *given = n.attribute(n.proto().attribute(0).name());
  if (!given)
    return n.fail("its attribute is not given to the function");
  StringRef kind = n.proto().attribute(0).name();
  if (kind == "value" && given->has_t()) {
    auto value = n.owner().fromTensor(given->t(), n.wants(0) ? n.proto().output(0) : "");
    if (!value)
      return n.fail(value.error().message);
    return n.resultValue(0, *value);
  }
  if (kind == "value_int")
    return n.resultKnown(0, {given->i()}, {}, n.i64Type());
  if (kind == "value_ints") {
    std::vector<int64_t> values(given->ints().begin(), given->ints().end());
    auto count = static_cast<int64_t>(values.size());
    if (count <= mostKnown)
      return n.resultKnown(0, DimShape(values.begin(), values.end()), {count}, n.i64Type());
    return n.result(0, n.constant(rowOf(DType::I64, values)));
  }
  if (kind == "value_float")
    return n.result(0, n.scalar(n.f32Type(), given->f()));
  if (kind == "value_floats")
    return n.result(
        0, n.constant(rowOf(DType::F32, std::vector<float>(given->floats().begin(), given->floats().end()))));
  n.fail("constants of kind '" + kind + "' are not supported");
}

void constantOfShape(NodeImporter &n) {
  DimShape shape = n.requireKnown(0, "shape");
  auto value = n.tensorAttribute("value");
  if (n.failed())
    return;
  if (!value)
    value = Tensor::zeros(DType::F32, {1});
  if (value->size() != 1)
    return n.fail("attribute 'value' is not one number");
  bool isSmall = isInteger(value->type()) || value->type() == DType::Bool;
  int64_t count = 1;
  for (const Dim &dim : shape) {
    if (dim.isStatic() && dim.value() < 0)
      return n.fail("the shape has the entry " + dim.str());
    isSmall = isSmall && dim.isStatic() && dim.value() <= mostKnown && (count *= dim.value()) <= mostKnown;
  }
  if (isSmall)
    return n.resultKnown(0, DimShape(count, Dim(value->toInts()[0])), *staticShape(shape),
                         mlirType(n.context(), value->type()));
  n.result(0, n.expand(n.constant(value->reshaped({})), shape));
}

/// How many numbers there are from `start` to before `limit`; `step` is not 0.
Dim countOf(const Dim &start, const Dim &limit, int64_t step) {
  Dim span = step > 0 ? limit - start : start - limit;
  return Dim::max(span, Dim(0)).ceilDiv(Dim(std::abs(step)));
}

/// The delta may be left out of com.microsoft's.
void range(NodeImporter &n) {
  Type type = n.inputType(0);
  if (n.failed())
    return;
  Dim count;
  const bool hasStep = n.has(2);
  if (llvm::isa<FloatType>(type)) {
    auto start = n.constantScalar(0), limit = n.constantScalar(1),
         step = hasStep ? n.constantScalar(2) : std::optional(1.0);
    if (start && limit && step && *step != 0) {
      double size = std::ceil((*limit - *start) / *step);
      if (!(size <= 1e12))
        return n.fail("the number of values is out of range");
      count = Dim(static_cast<int64_t>(std::max(size, 0.0)));
    } else {
      auto first = sizeThroughFloats(n.operand(0)), end = sizeThroughFloats(n.operand(1));
      // From a fraction to a size there are as many numbers as from the integer below it.
      if (!first && end && start && step == 1 && std::abs(*start) < 1e9)
        first = Dim(static_cast<int64_t>(std::floor(*start)));
      if (n.failed())
        return;
      if (!first || !end || !step || *step == 0 || *step != std::round(*step) || std::abs(*step) > 1e9)
        return n.fail("the number of values depends on run-time data");
      count = countOf(*first, *end, static_cast<int64_t>(*step));
    }
  } else {
    DimShape start = n.requireKnown(0, "start"), limit = n.requireKnown(1, "limit");
    std::vector<int64_t> step = hasStep ? n.requireConstants(2, "delta") : std::vector<int64_t>{1};
    if (n.failed())
      return;
    if (start.size() != 1 || limit.size() != 1 || step.size() != 1 || step[0] == 0)
      return n.fail("start, limit and delta must be one number each, and delta not 0");
    if (step[0] == std::numeric_limits<int64_t>::min())
      return n.fail("delta is out of range");
    int64_t difference = 0;
    if (start[0].isStatic() && limit[0].isStatic() &&
        __builtin_sub_overflow(limit[0].value(), start[0].value(), &difference))
      return n.fail("the number of values is out of range");
    count = countOf(start[0], limit[0], step[0]);
  }
  Value start = n.reshape(n.operand(0), {}), step = hasStep ? n.reshape(n.operand(2), {}) : n.scalar(type, 1);
  n.result(0, n.build<nn::IotaOp>({start, step}, n.dims("size", {count})));
}

void eyeLike(NodeImporter &n) {
  DimShape shape = n.shape(0);
  if (shape.size() != 2)
    return n.fail("the input must have two dims");
  Type type = n.typeAttribute("dtype", n.inputType(0)), index = n.i64Type();
  Value zero = n.scalar(index, 0), one = n.scalar(index, 1);
  Value row = n.reshape(n.build<nn::IotaOp>({zero, one}, n.dims("size", {shape[0]})), {shape[0], Dim(1)});
  Value column = n.build<nn::IotaOp>({zero, one}, n.dims("size", {shape[1]}));
  Value diagonal = n.add(row, n.scalar(index, static_cast<double>(n.intAttribute("k", 0))));
  n.result(0, n.cast(n.build<nn::EqualOp>({column, diagonal}), type));
}

void dropout(NodeImporter &n) {
  // Of inference: in training mode nothing must be dropped.
  const auto ratio = n.has(1) ? n.constantScalar(1) : std::optional(0.5);
  if (n.has(2) && ratio != 0) {
    const auto training = n.known(2);
    if (!training)
      return n.fail("training_mode (input 2, '" + n.proto().input(2) + "') depends on run-time data" +
                    remedy(n, n.operand(2)));
    if (training->size() != 1 || !(training->front() == Dim(0)))
      return n.fail("training mode is not supported");
  }
  n.forward(0, 0);
  if (n.wants(1))
    n.result(1, n.expand(n.scalar(n.builder().getI1Type(), 1), n.shape(0)));
}

} // namespace

void registerConstants(HandlerTable &table) {
  table.add("", "Constant", 0, 0, constant);
  table.add("", "ConstantOfShape", 1, 1, constantOfShape);
  table.add("", "Range", 3, 3, range);
  table.add("com.microsoft", "Range", 2, 3, range);
  table.add("", "EyeLike", 1, 1, eyeLike);
  table.add("", "Identity", 1, 1, [](NodeImporter &n) { n.forward(0, 0); });
  table.add("", "Dropout", 1, 3, dropout);
}

} // namespace fusion::onnx
