#include "api/Compare.h"

#include <fmt/format.h>

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

Comparison compareOutputs(const std::vector<Port> &ports, const NamedTensors &outputs, const NamedTensors &expected,
                          const Tolerance &tolerance) {
  Comparison result;
  for (const Port &port : ports) {
    const Tensor &actual = outputs.at(port.name);
    auto want = expected.find(port.name);
    std::string head = fmt::format("{} {} {}", port.name, shapeString(actual.shape()), name(actual.type()));
    if (want == expected.end()) {
      result.text += head + " not expected\n";
      continue;
    }
    auto difference = compare(actual, want->second);
    if (!difference) {
      result.text += fmt::format("{} FAIL {}\n", head, difference.error().message);
      result.pass = false;
      continue;
    }
    bool good = difference->relativeL2 <= tolerance.relative.value_or(defaultTolerance(actual.type())) ||
                (tolerance.absolute && difference->maxAbs <= *tolerance.absolute);
    result.pass &= good;
    result.text += fmt::format("{} max_abs {:.3g} rel_l2 {:.3g} {}\n", head, difference->maxAbs,
                               difference->relativeL2, good ? "PASS" : "FAIL");
  }
  return result;
}

} // namespace fusion
