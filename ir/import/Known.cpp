#include "ir/import/Known.h"

using namespace mlir;

namespace fusion::onnx {

std::optional<std::vector<int64_t>> staticShape(ArrayRef<Dim> shape) {
  std::vector<int64_t> result;
  for (const Dim &dim : shape) {
    if (!dim.isStatic())
      return std::nullopt;
    result.push_back(dim.value());
  }
  return result;
}

std::optional<KnownInts> knownInput(NodeImporter &n, unsigned index) {
  auto values = n.known(index);
  if (!values)
    return std::nullopt;
  return KnownInts{*values, *staticShape(n.shape(index))};
}

KnownInts sliceKnown(const KnownInts &x, ArrayRef<int64_t> starts, ArrayRef<int64_t> sizes,
                     ArrayRef<int64_t> steps) {
  KnownInts result;
  result.shape.assign(sizes.begin(), sizes.end());
  int64_t count = elementCount(result.shape);
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t rest = flat, from = 0, stride = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      from += (starts[i] + rest % sizes[i] * steps[i]) * stride;
      rest /= sizes[i];
      stride *= x.shape[i];
    }
    result.values.push_back(x.values[from]);
  }
  return result;
}

void resultReshaped(NodeImporter &n, const DimShape &shape) {
  if (n.failed())
    return;
  auto values = n.known(0);
  auto dims = staticShape(shape);
  if (values && dims && elementCount(*dims) == static_cast<int64_t>(values->size()))
    n.resultKnown(0, *values, *dims, n.inputType(0));
  else
    n.result(0, n.reshape(n.operand(0), shape));
}

bool isManageable(ArrayRef<Dim> dims) {
  size_t terms = 1;
  for (const Dim &dim : dims) {
    terms *= std::max<size_t>(1, dim.termCount());
    if (terms > 4096)
      return false;
    // Long ones of few terms are sizes behind many divisions; of many they grow from op to op.
    const size_t length = dim.isStatic() ? 0 : dim.str().size();
    if (length > 4096 || (length > 512 && dim.termCount() > 32))
      return false;
  }
  return true;
}

Dim broadcastDim(const Dim &a, const Dim &b) {
  return a == Dim(1) || nn::isOneOrNone(a) || !(b == Dim(1) || nn::isOneOrNone(b)) ? b : a;
}

} // namespace fusion::onnx
