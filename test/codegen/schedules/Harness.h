// Runs one op or group of a small module through a schedule, in emulation, against the reference.
#pragma once

#include "codegen/Schedule.h"
#include "codegen/schedule/Schedules.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

namespace fusion::test {

struct ScheduleCase {
  /// A module with one function. What it returns is computed by one op or group, from views of the arguments
  /// or of constants.
  std::string text;
  SymbolValues symbols;
  /// Largest relative L2 error of an output; an infinite or NaN difference always fails.
  double tolerance = 2e-6;
  /// Fills argument `index`; values around 1 by default.
  std::function<void(unsigned index, Tensor &tensor)> fill = {};
  /// Whether NVRTC, if it is there, compiles the kernel too.
  bool compiles = true;
  uint32_t arch = 90; ///< sm_XX that the kernel is emitted for
  std::optional<int64_t> l2Bytes = {}; ///< of the target, if other than the table's
  std::optional<int> multiprocessors = {}; ///< likewise
  std::string variant = {}; ///< Alternative::variant; empty: what is taken where nothing is measured
};

/// Emits the kernel for the case's sizes and returns its source. It runs and is compared when the test
/// program ends (see Deferred.h): on the GPU, or in emulation where there is none or it lacks what the kernel
/// needs. Without a GPU it is checked for spills too.
std::string check(const Schedule &schedule, const ScheduleCase &test);
/// The reason why the schedule does not take it; empty if it does.
std::string refusal(const Schedule &schedule, const std::string &text);

/// The sizes that the plan has kernels for; none if one kernel is for all.
std::vector<Predicate> predicatesOf(const SchedulePlan &plan, const Region &region);

/// Sets element `index` of a tensor of any type.
void set(Tensor &tensor, int64_t index, double value);
/// Reproducible values: floats in [-2, 2], integers in [-5, 5], booleans mostly true.
void fillRandom(Tensor &tensor, unsigned seed);

} // namespace fusion::test
