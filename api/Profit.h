// Candidates timed on the machine's GPU.
#pragma once

#include "api/Fusion.h"
#include "codegen/BuildPlan.h"
#include "passes/fuse/Profit.h"
#include "runtime/KernelCache.h"
#include "runtime/Measure.h"

#include "llvm/ADT/StringMap.h"

namespace fusion {

/// Times of candidates, each distinct body once: what was measured before, by this process or another, comes
/// from the cache. A body is known by its kernels' source and launches, the sizes and the device.
class MeasuredProfit : public ProfitOracle {
public:
  /// `device`: the full name of what `makeBackend` makes; `options`: for what target and by which schedules
  /// kernels are written.
  MeasuredProfit(std::string device, PlanOptions options, BackendFactory makeBackend,
                 std::shared_ptr<KernelCache> cache)
      : device(std::move(device)), options(std::move(options)), makeBackend(std::move(makeBackend)),
        cache(std::move(cache)) {}

  std::string description() const override { return "measured on " + device; }
  std::vector<Result<Times>> measure(llvm::ArrayRef<Candidate> candidates, const nn::SymbolicShapes &shapes,
                                     const SymbolValues &sizes) override;

private:
  struct Body;
  void time(std::vector<Body> &bodies, const SymbolValues &sizes);

  std::string device;
  PlanOptions options;
  BackendFactory makeBackend;
  std::shared_ptr<KernelCache> cache;
  llvm::StringMap<Result<Times>> known; ///< by the text of the two forms and the sizes
};

/// The oracle of GPU 0 as `mode` wants it; null where the model decides. The target must be its architecture.
/// `cacheFolder` as in CompileOptions.
Result<std::unique_ptr<ProfitOracle>> makeProfitOracle(ProfitMode mode, const PlanOptions &options,
                                                       const std::string &cacheFolder = {});

} // namespace fusion
