// The weights of one program where its kernels can read them.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Safetensors.h"
#include "runtime/Backend.h"
#include "runtime/SharedWeights.h"
#include "runtime/SpanFiles.h"
#include "runtime/WeightRows.h"

#include <memory>
#include <set>
#include <vector>

namespace fusion {

/// By buffer: whether a launch or an output uses it. Weights that nothing uses are not loaded.
std::vector<bool> usedBuffers(const ProgramPlan &plan);
/// Whether kernels on that GPU read these rows of a weight where the caller has them.
bool isReadInPlace(const BufferPlan &buffer, const std::vector<WeightRows> &rows, Device device);

class WeightStore {
public:
  /// Maps the files and copies what a launch or an output uses straight from there to the device, into one
  /// allocation. Of a weight with a window, rank `rank`'s part alone. A backend that shares host memory uses
  /// the mapping itself where its alignment allows. So is a weight that lies on the backend's GPU already;
  /// where it cannot be, it is copied from there. `prepared`: the results of the plan's preparation, where
  /// they are, by the names that preparationOf gives them. `elsewhere`: by buffer, where another program has
  /// the same, which is read there. Errors: a missing or short file, by weight and
  /// path.
  static Result<WeightStore> load(const ProgramPlan &plan, Backend &backend, int rank,
                                  const NamedTensors &prepared = {},
                                  const std::vector<SharedWeights::Place> &elsewhere = {});

  /// The address of a weight or prepared buffer; null for others and for unused weights.
  void *address(BufferId buffer) const { return addresses[buffer]; }
  /// The same by buffer, for others to read.
  std::vector<SharedWeights::Place> places() const;
  /// What keeps all of the addresses valid.
  std::shared_ptr<void> owner() const { return storage; }
  size_t deviceBytes() const { return copiedBytes; }

private:
  struct Storage {
    SpanFiles files;
    std::vector<Tensor> tensors;
    std::shared_ptr<void> memory;
    std::set<std::shared_ptr<void>> others; ///< which own what is read elsewhere
  };
  std::vector<void *> addresses;
  std::shared_ptr<Storage> storage;
  size_t copiedBytes = 0;
};

} // namespace fusion
