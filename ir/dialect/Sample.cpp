#include "ir/dialect/Sample.h"

#include <cmath>

#define GET_OP_CLASSES
#include "ir/dialect/NNSample.cpp.inc"

using namespace mlir;

namespace fusion::nn {

LogicalResult SampleOp::inferShapes(ShapeContext &context) {
  if (context.rank(0) < 1)
    return context.fail("needs at least one dim");
  if (context.shape(1) != DimShape{Dim(2)})
    return context.fail("the seed is a key and a counter");
  const double temperature = getTemperature().convertToDouble(), topP = getTopP().convertToDouble();
  if (!(temperature >= 1e-4 && temperature <= 1e4) || !(topP > 0 && topP <= 1) ||
      static_cast<int64_t>(getTopK()) < 0)
    return context.fail("temperature, top_k or top_p is out of range");
  DimShape shape = context.shape(0);
  shape.pop_back();
  context.set(0, shape);
  return success();
}

float SampleOp::scale() {
  return static_cast<float>(65536 * 1.4426950408889634 / getTemperature().convertToDouble());
}
uint64_t SampleOp::share() {
  const double topP = getTopP().convertToDouble();
  return topP < 1 ? static_cast<uint64_t>(std::ldexp(topP, 64)) : 0;
}

} // namespace fusion::nn
