#include "api/NearPlaces.h"

#include "api/Trial.h"
#include "ir/dialect/Types.h"
#include "passes/fuse/Candidate.h"

#include "mlir/IR/TypeUtilities.h"

#include <cmath>

using namespace mlir;

namespace fusion {

/// The floats along whose last dim the value is the place of the largest, if `function` computes them itself.
static Value lookedAt(Value value, func::FuncOp function) {
  auto argMax = value.getDefiningOp<nn::ArgMaxOp>();
  if (!argMax || !isFloat(dtype(argMax.getX())) || llvm::isa<BlockArgument>(argMax.getX()))
    return {};
  const auto axis = static_cast<int64_t>(argMax.getAxis());
  const bool isLast = axis == -1 || axis + 1 == tensorType(argMax.getX()).getRank();
  return isLast && argMax->getBlock() == &function.getBody().front() ? argMax.getX() : Value();
}

NearPlaces::NearPlaces(func::FuncOp function) : whole(function) {
  if (!function.walk([](nn::ArgMaxOp) { return WalkResult::interrupt(); }).wasInterrupted())
    return;
  module = llvm::cast<ModuleOp>(function->getParentOfType<ModuleOp>()->clone());
  auto copy = module->lookupSymbol<func::FuncOp>(function.getName());
  for (GroupOp group : llvm::to_vector(copy.getOps<GroupOp>()))
    dissolve(group);
  Operation *end = copy.getBody().front().getTerminator();
  for (unsigned index = 0, count = copy.getNumResults(); index < count; ++index) {
    const Value elements = lookedAt(end->getOperand(index), copy);
    if (!elements)
      continue;
    const unsigned last = copy.getNumResults();
    if (failed(copy.insertResult(last, elements.getType(), {})))
      continue;
    end->insertOperands(last, elements);
    elementsOf[nn::resultName(copy, index)] = nn::resultName(copy, last);
  }
  if (!elementsOf.empty())
    whole = copy;
}

/// That of the narrowest floats which the function computes.
static double toleranceOf(func::FuncOp function, const NamedTensors &inputs) {
  double tolerance = 0;
  function.walk([&](Operation *op) {
    for (Value result : op->getResults())
      if (auto type = dtypeOf(getElementTypeOrSelf(result.getType())); type && isFloat(*type))
        tolerance = std::max(tolerance, roundingTolerance(*type, inputs));
  });
  return tolerance;
}

bool NearPlaces::isFurther(const std::string &name) const {
  return llvm::any_of(elementsOf, [&](const auto &entry) { return entry.second == name; });
}

bool NearPlaces::isAsLarge(const std::string &name, const Tensor &actual, const NamedTensors &expected,
                           const NamedTensors &inputs) const {
  auto found = elementsOf.find(name);
  if (found == elementsOf.end())
    return false;
  const Tensor &elements = expected.at(found->second);
  const std::vector<int64_t> places = actual.toInts(), wanted = expected.at(name).toInts();
  const std::vector<float> values = elements.toFloats();
  const int64_t width = elements.shape().back();
  if (places.size() != wanted.size() || static_cast<int64_t>(places.size()) * width != elements.size())
    return false;
  func::FuncOp computes = whole;
  const double tolerance = toleranceOf(computes, inputs);
  for (size_t row = 0; row < places.size(); ++row) {
    if (places[row] == wanted[row])
      continue;
    if (places[row] < 0 || places[row] >= width)
      return false;
    const float *of = values.data() + static_cast<int64_t>(row) * width;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i)
      squares += static_cast<double>(of[i]) * of[i];
    const double largest = of[wanted[row]],
                 scale = std::max(std::abs(largest), std::sqrt(squares / static_cast<double>(width)));
    // Both elements may be off; NaN is as large as nothing.
    if (!(largest - of[places[row]] <= 2 * tolerance * scale))
      return false;
  }
  return true;
}

} // namespace fusion
