// A tensor that stays divided: each rank's shard lies on that rank's device.
#pragma once

#include "runtime/collective/Shards.h"

#include <memory>

namespace fusion {

/// Where such a tensor is: on no single device. Its `data()` is not that of its elements.
constexpr Device onAllRanks = {Device::Kind::Cuda, -1};

struct DividedTensor {
  std::vector<Tensor> shards;           ///< by rank; of a process, only its own is not empty
  std::optional<PortPlan::Shard> shard; ///< nothing: every rank has all of it
  std::shared_ptr<const void> group;    ///< those who can read it
};

/// The whole, of which each rank has a shard of this type and shape.
Tensor makeDivided(DividedTensor tensor, DType type, Shape shard);
/// Null for any other tensor.
const DividedTensor *dividedTensor(const Tensor &tensor);

/// Rank `rank`'s of a whole graph's inputs: its shards of tensors that this group left divided, and those of
/// inputsOf() of all others. An error for a tensor of another group or divided in another way.
Result<NamedTensors> inputsOnRank(const NamedTensors &whole, const std::vector<PortShard> &ports,
                                  int64_t rank, int64_t ranks, const void *group);

} // namespace fusion
