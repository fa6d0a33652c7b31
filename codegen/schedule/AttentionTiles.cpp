#include "codegen/schedule/AttentionTiles.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

/// Columns that are read at a time: 16 bytes of elements, fewer of codes.
constexpr int64_t vectorLength = 8;

bool readsVectors(const View &view, int64_t length) {
  const auto outer = ArrayRef(view.strides).drop_back();
  return view.strides.back() == Dim(1) && view.shape.back().knownMultipleOf(length) &&
         view.offset.knownMultipleOf(length) &&
         llvm::all_of(llvm::zip(ArrayRef(view.shape).drop_back(), outer), [&](auto dim) {
           return std::get<0>(dim) == Dim(1) || std::get<1>(dim).knownMultipleOf(length);
         });
}

std::optional<std::string> tensorCoreRefusal(const Problem &problem) {
  nn::AttentionOp op = problem.op;
  const DType type = dtype(op.getQ());
  if (type != DType::F16 && type != DType::BF16)
    return std::string(name(type)) + " has no matrix products";
  if (dtype(problem.keysOfOp()) != type || dtype(problem.valuesOfOp()) != type || dtype(op.getY()) != type)
    return std::string("operands of several types");
  if (!problem.group.constant())
    return std::string("the number of heads that share keys is not static");
  const Stored &keys = problem.storedKeys, &values = problem.storedValues;
  for (const auto &[view, length, what] :
       {std::tuple(problem.view(problem.firstQueries()), vectorLength, "queries"),
        std::tuple(problem.storedView(keys), keys.elementsOf(vectorLength), "keys"),
        std::tuple(problem.storedView(values), values.elementsOf(vectorLength), "values")})
    if (!readsVectors(view, length))
      return fmt::format("the {} cannot be read 8 elements at a time", what);
  if (!problem.readsScales(keys) || !problem.readsScales(values))
    return std::string("scales of columns cannot be read 16 bytes at a time");
  if (problem.resultOrder().back() != 3)
    return std::string("the result's rows do not lie side by side");
  return std::nullopt;
}

bool hasTensorMap(const View &view) {
  return llvm::all_of(llvm::zip(view.shape, view.strides), [](auto dim) {
    return std::get<0>(dim) == Dim(1) || std::get<1>(dim).constant().value_or(1) > 0;
  });
}

TensorMapArgument mapOf(const View &view, Value operand, ArrayRef<unsigned> order,
                        std::vector<uint32_t> box) {
  constexpr int64_t vector = 8;
  TensorMapArgument map;
  map.byteOffset = view.offset * Dim(static_cast<int64_t>(byteSize(dtype(operand))));
  map.type = dtype(operand);
  for (unsigned dim : order) {
    map.shape.push_back(view.shape[dim]);
    map.strides.push_back(dim != 3 && view.shape[dim] == Dim(1) ? Dim(vector) : view.strides[dim]);
  }
  map.box = std::move(box);
  map.swizzle = TensorMapArgument::Swizzle::Bytes128;
  map.l2Promotion = TensorMapArgument::L2Promotion::Bytes256;
  return map;
}

bool isScaleOnly(const Problem &problem) {
  nn::AttentionOp op = problem.op;
  return !problem.mask && op.getSoftcap().convertToDouble() <= 0 && op.getScale().convertToDouble() > 0;
}

} // namespace fusion::attention
