// How long plans take on a device, for choices by measurement.
#pragma once

#include "runtime/Backend.h"

#include <functional>
#include <span>
#include <vector>

namespace fusion {

struct MeasureOptions {
  /// Of one run's buffers. A plan that needs more is not measured.
  size_t mostBytes = size_t(2) << 30;
  /// Runs over buffers of their own in one sample, as far as `mostBytes` allows.
  int copies = 16;
  /// The median counts.
  int samples = 7;
};

/// A device that runs these kernels, which outlive it.
using BackendFactory = std::function<Result<std::unique_ptr<Backend>>(std::span<const KernelPlan>)>;

/// For each of `plans` the microseconds of one run with the symbols' values `sizes`, or why there is no
/// answer. All kernels that the runs launch are compiled first. A sample is one recording of several runs,
/// replayed with cold caches: launches overlap as in real runs, inputs hold random numbers. `onTimed` is
/// called before each plan.
std::vector<Result<double>> measurePlans(std::span<const ProgramPlan *const> plans, const SymbolValues &sizes,
                                         const BackendFactory &makeBackend,
                                         const MeasureOptions &options = {},
                                         const std::function<void(size_t)> &onTimed = {});

} // namespace fusion
