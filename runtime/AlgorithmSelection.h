// Which alternative of each measured step is the fastest on this device.
#pragma once

#include "runtime/Executor.h"
#include "runtime/Measure.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fusion {

/// The variant that FUSION_MATMUL names (kernel, other, library), for tests and comparisons; empty if none,
/// an error for anything else.
Result<std::string> forcedVariant();

/// Decisions hold for as many rows, and other sizes, as there are up to a power of two: each is made on the
/// first run with such sizes, by timing the candidates on buffers of their own, and kept on disk. Caches that
/// grow from run to run are as long there as they typically become (TypicalSizes.h). Not thread-safe; the
/// plan must outlive it.
class AlgorithmSelection {
public:
  AlgorithmSelection(const ProgramPlan &plan, const ExecutorOptions &options);
  bool empty() const { return measured.empty(); }

  /// For these sizes. Ranks decide together, as the first one finds. `compile` is called before something is
  /// measured: kernels that it leaves in the cache are not compiled here. Errors: FUSION_MATMUL asks for what
  /// is not there.
  Status decide(const SymbolValues &symbols, bool mayMeasure, const std::string &device,
                const std::function<void()> &compile = {});
  /// As decided last for the step.
  uint32_t choose(size_t step, std::span<const uint32_t> candidates) const;
  /// For people: how many of the matmuls a library computed in the run decided last and why, and how many
  /// another kernel of ours than the first; empty if there was no choice.
  std::string text() const;

  /// For tests: what kernels are timed on.
  void timeOn(BackendFactory factory) {
    makeBackend = std::move(factory);
    times = true;
  }

private:
  static constexpr size_t dims = 4; ///< m, n, k and the number of matrices, or what kernels of ours are for
  struct MeasuredStep {
    size_t step = 0;
    uint32_t kind = 0;                     ///< steps of one kind have the same launches, but for buffers
    std::array<uint32_t, dims> sizes = {}; ///< into `distinct`
    std::vector<std::vector<uint32_t>> when; ///< of each alternative, likewise
    bool hasLibrary = false;               ///< one of the variants is a library's
    std::string chosen;                    ///< variant; empty: the first
  };
  /// A kind of step, and the sizes up to a power of two.
  using Key = std::pair<uint32_t, std::array<int, dims>>;
  struct Pending {
    Key key;
    size_t index;                     ///< into `measured`
    std::vector<uint32_t> candidates; ///< the first is taken where nothing is measured
  };

  uint32_t place(const Dim &dim);
  /// Of `distinct`.
  std::vector<int64_t> valuesAt(const SymbolValues &symbols) const;
  /// What is to be decided at these sizes, if there is a choice.
  std::optional<Pending> choiceAt(size_t index, const std::vector<int64_t> &values) const;
  struct Conditions {
    const SymbolValues &symbols;
    bool mayMeasure;
    const std::string &device;
    const std::function<void()> &compile;
  };
  Status settle(std::vector<Pending> pending, const Conditions &conditions);
  /// The same where all variants are kernels of ours.
  Status settleKernels(std::vector<Pending> pending, const Conditions &conditions, bool isForced);
  /// `device`: what the answers are kept under.
  void measure(std::vector<Pending> pending, const Conditions &conditions, const std::string &device);
  Status shareDecisions(const std::vector<Pending> &pending);
  /// The variant of a candidate.
  std::string variantOf(const Pending &one, size_t candidate) const;

  const ProgramPlan &plan;
  const ExecutorOptions &options;
  BackendFactory makeBackend;
  bool times; ///< whether a kernel's time says anything: not where it is emulated
  std::vector<MeasuredStep> measured;
  std::vector<Dim> distinct;
  std::map<Key, std::string> decided;   ///< the fastest variant; empty: the first
  struct Count {
    size_t choices = 0, byLibrary = 0, byOther = 0;
  };
  Count ofLibrary, ofKernels; ///< of the steps, in the decision made last
  std::string why;                      ///< the library computes nothing, or by which one it does
};

} // namespace fusion
