// Candidates timed on the machine's GPU.
#pragma once

#include "passes/fuse/Profit.h"
#include "runtime/api/Fusion.h"
#include "runtime/KernelCache.h"
#include "runtime/Measure.h"

#include "llvm/ADT/StringMap.h"

namespace fusion {

/// Times of candidates, each distinct body once: what was measured before, by this process or another, comes from the
/// cache. A body is known by its kernels' source and launches, the sizes and the device.
class MeasuredProfit : public ProfitOracle {
public:
  /// `device`: the full name of what `makeBackend` makes; `target`: the architecture that kernels are written for.
  MeasuredProfit(std::string device, std::string target, BackendFactory makeBackend, std::shared_ptr<KernelCache> cache)
      : device(std::move(device)), target(std::move(target)), makeBackend(std::move(makeBackend)),
        cache(std::move(cache)) {}

  std::string description() const override { return "measured on " + device; }
  std::vector<Result<Times>> measure(llvm::ArrayRef<Candidate> candidates, const nn::SymbolicShapes &shapes,
                                     const SymbolValues &sizes) override;

private:
  struct Body;
  void time(std::vector<Body> &bodies, const SymbolValues &sizes);

  std::string device, target;
  BackendFactory makeBackend;
  std::shared_ptr<KernelCache> cache;
  llvm::StringMap<Result<Times>> known; ///< by the text of the two forms and the sizes
};

/// The oracle of GPU 0 as `mode` wants it; null where the model decides. `target` must be the GPU's architecture.
/// `cacheFolder` as in CompileOptions.
Result<std::unique_ptr<ProfitOracle>> makeProfitOracle(ProfitMode mode, const std::string &target,
                                                       const std::string &cacheFolder = {});

} // namespace fusion
