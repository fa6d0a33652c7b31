// Names and numbers that the writer and the reader of plans' JSON share. Internal.
#pragma once

#include "codegen/plan/Json.h"
#include "codegen/plan/ProgramPlan.h"

namespace fusion::plan_json {

/// Raised whenever a field changes its meaning: an older plan in a cache is then rejected, not misread.
constexpr int formatVersion = 12;

// The names of enumerators, in their order.
constexpr const char *parameterKinds[] = {"pointer", "int64", "tensor_map", "workspace", "exchange"};
constexpr const char *bufferKinds[] = {"input", "weight", "temporary", "output", "prepared"};
constexpr const char *swizzles[] = {"none", "32", "64", "128"};
constexpr const char *l2Promotions[] = {"none", "64", "128", "256"};
constexpr const char *outOfBounds[] = {"zeros", "nan"};
constexpr const char *workspaceContents[] = {"undefined", "zeroed", "kept_zero"};
constexpr const char *links[] = {"none", "first", "between", "last"};
constexpr const char *collectiveAlgorithms[] = {"one-shot", "two-shot", "library"};
constexpr const char *choices[] = {"predicate", "measurement", "ranks"};

/// A step alone, as it stands in a plan.
std::string stepJson(const Step &step);

template <class Enum, size_t N>
const char *nameOf(const char *const (&names)[N], Enum value) {
  return names[static_cast<size_t>(value)];
}

} // namespace fusion::plan_json
