// Which way of doing a collective is the fastest on the machine at hand: measured once, then kept.
#pragma once

#include "runtime/KernelCache.h"
#include "runtime/collective/Forms.h"

namespace fusion {

/// What is timed: a form, and for the two-shot one whether rows half as long as the sum come back.
struct TimedForm {
  CollectiveForm form = CollectiveForm::OneShot;
  bool finishedRows = false;
};

/// Runs sums on one rank's device. Every call is made by all ranks, in the same order, while nothing is recorded.
class FormTimer {
public:
  virtual ~FormTimer() = default;
  /// Before all else: kernels and memory for messages of up to `messageBytes`. Errors: why this rank cannot measure.
  virtual Status prepare(size_t messageBytes) = 0;
  /// Microseconds that one of many sums of so many bytes a rank takes, the library's with what a kernel behind it would read
  /// and write. Nothing: there is no such form here.
  virtual Result<std::optional<double>> microseconds(const TimedForm &form, size_t messageBytes) = 0;
};

/// Microseconds for messages of `bytes`, of the slowest rank; a negative number where it was not measured.
struct FormTimes {
  size_t bytes = 0;
  double oneShot = -1, twoShot = -1, finished = -1, library = -1;
};

/// Where the lines cross, in ascending order of `bytes`; between two sizes by their logarithms. A limit that lies beyond the
/// sizes is `table`'s, if that is beyond them too.
FormLimits limitsOf(std::span<const FormTimes> times, const FormLimits &table);

struct Calibration {
  FormLimits limits;
  std::string origin; ///< for people: "measured", "measured before", or "not measured: …"
};

/// The limits for the group, the same on all ranks: what rank 0 finds under `key` in `cache`, else what `timer` measures, which
/// is kept there, else `table`. Errors: those of `host`.
Result<Calibration> calibrate(Rendezvous &host, KernelCache &cache, const std::string &key, FormTimer &timer,
                              const FormLimits &table);

} // namespace fusion
