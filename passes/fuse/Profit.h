// What fusing gains, by measurement.
#pragma once

#include "passes/fuse/Candidate.h"

namespace fusion {

/// Times candidates on the machine. Implemented above the passes, by the runtime.
class ProfitOracle {
public:
  virtual ~ProfitOracle() = default;
  /// For reports: "measured on NVIDIA H200 (sm_90a)".
  virtual std::string description() const = 0;

  struct Times {
    double fused = 0,
           unfused = 0; ///< microseconds of the one kernel, and of the kernels of the ops by themselves
  };
  /// One entry for each candidate, or why it could not be measured. `shapes` are those of the function around
  /// them, `sizes` the values of its symbols.
  virtual std::vector<Result<Times>> measure(llvm::ArrayRef<Candidate> candidates,
                                             const nn::SymbolicShapes &shapes, const SymbolValues &sizes) = 0;
};

/// The score of a candidate that saves so much time: the memory traffic that takes as long, which is what
/// candidates without a measurement are scored by.
double scoreOfSaving(double microseconds);

/// By how many microseconds measurements of so long a time differ.
double noiseOf(double microseconds);

/// Why a candidate should stay unfused, or nothing: "measures slower: 3.1 µs fused, 2.6 µs unfused at batch =
/// 1". Times within the noise of a measurement are no reason.
std::optional<std::string> whySlower(const ProfitOracle::Times &times, const SymbolValues &sizes);

} // namespace fusion
