// How much memory of the device a program takes.
#pragma once

#include "runtime/Backend.h"
#include "runtime/ShapePlan.h"
#include "runtime/SharedWeights.h"

#include <string>

namespace fusion {

struct MemoryNeed {
  size_t weights = 0;     ///< and what is prepared of them
  size_t caches = 0;      ///< inputs and results that share a buffer in place
  size_t temporaries = 0; ///< and workspace
  size_t results = 0;     ///< the others
  size_t total() const { return weights + caches + temporaries + results; }
};

/// Of rank `rank`: weights that launches or results use, each once, but for those that kernels on `device`
/// read where the caller has them, and those that are `elsewhere` (by buffer).
Result<size_t> weightBytesOf(const ProgramPlan &plan, int rank, Device device,
                             const std::vector<SharedWeights::Place> &elsewhere = {});
/// All but the weights, for one set of shapes.
MemoryNeed memoryOf(const ProgramPlan &plan, const ShapePlan &shapes);
/// "weights 2.3 GiB, caches 128.0 MiB, temporaries 12.0 MiB, results 8.0 MiB"
std::string describe(const MemoryNeed &need);
/// "2.3 GiB", "128.0 MiB"
std::string bytesText(size_t bytes);
/// What a program may use of the device: what it has already and what is free, at most `limit` unless that is
/// 0.
size_t availableBytes(const Backend &device, size_t limit);
/// An Environment error of one line where `need` is more than `available`.
Status checkFits(const MemoryNeed &need, size_t available, const std::string &device);

} // namespace fusion
