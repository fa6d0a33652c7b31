#include "api/Compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fusion {

static double defaultTolerance(DType type) {
  switch (type) {
  case DType::F16:
    return 2e-3;
  case DType::BF16:
    return 1.5e-2;
  case DType::F8E4M3:
    return 7e-2;
  case DType::F8E5M2:
    return 1.5e-1;
  default:
    return isFloat(type) ? 1e-5 : 0;
  }
}

static double relativeTolerance(DType type, const Tolerance &tolerance) {
  const double grown = std::sqrt(std::max(1.0, static_cast<double>(tolerance.layers) / 2));
  return tolerance.relative.value_or(defaultTolerance(type) * grown);
}

namespace {
/// Why values of one type cannot stand for those of another; empty if they can. Types of floats differ by
/// their roundings only.
std::string otherKind(DType actual, DType expected) {
  const bool isSame = actual == expected || (isFloat(actual) && isFloat(expected)) ||
                      (isInteger(actual) && isInteger(expected));
  return isSame ? "" : fmt::format("{} was expected", name(expected));
}

/// One output against those that were expected of that name, of which there is at least one.
class Verdict {
public:
  Verdict(const Tensor &actual, const Tensor *want, const Tensor *exact, const Tolerance &tolerance) {
    for (const Tensor *other : {want, exact})
      if (other && text.empty() && !otherKind(actual.type(), other->type()).empty())
        text = "FAIL " + otherKind(actual.type(), other->type());
    if (!text.empty())
      return;
    const double relative = relativeTolerance(actual.type(), tolerance);
    auto difference = compare(actual, exact ? *exact : *want);
    auto expected = exact && want ? compare(*want, *exact) : difference;
    if (!difference || !expected) {
      text = "FAIL " + (difference ? expected : difference).error().message;
      return;
    }
    const double limit =
        exact && want ? std::max(1.5 * expected->relativeL2, defaultTolerance(actual.type())) : relative;
    pass =
        difference->relativeL2 <= limit || (tolerance.absolute && difference->maxAbs <= *tolerance.absolute);
    text = fmt::format("max_abs {:.3g} rel_l2 {:.3g} ", difference->maxAbs, difference->relativeL2);
    if (exact)
      text += want ? fmt::format("of f32, where {:.3g} was expected, ", expected->relativeL2) : "of f32 ";
    text += pass ? "PASS" : "FAIL";
    if (want && want->type() != actual.type())
      text += fmt::format(", expected as {}", name(want->type()));
  }
  std::string text;
  bool pass = false;
};

const Tensor *find(const NamedTensors &tensors, const std::string &name) {
  auto tensor = tensors.find(name);
  return tensor == tensors.end() ? nullptr : &tensor->second;
}
} // namespace

Comparison compareOutputs(const std::vector<Port> &ports, const NamedTensors &outputs,
                          const NamedTensors &expected, const Tolerance &tolerance) {
  Comparison result;
  size_t others = 0;
  for (const Port &port : ports) {
    const Tensor *want = find(expected, port.name),
                 *exact = tolerance.exact ? find(*tolerance.exact, port.name) : nullptr;
    const Tensor *actual = find(outputs, port.name);
    if (!actual || (!want && !exact)) {
      ++others;
      continue;
    }
    const Verdict verdict(*actual, want, exact, tolerance);
    result.text += fmt::format("{} {} {} {}\n", port.name, shapeString(actual->shape()), name(actual->type()),
                               verdict.text);
    result.pass &= verdict.pass;
  }
  if (others > 0)
    result.text += fmt::format("{} output{} not expected\n", others, others == 1 ? "" : "s");
  return result;
}

} // namespace fusion
