// Tensors of which each rank has a shard or an addend.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/Result.h"
#include "ir/base/Safetensors.h"
#include "ir/base/Tensor.h"

#include <vector>

namespace fusion {

/// Shard `index` of `count` equal ones along `axis`; and the inverse. Of dense tensors on the host.
Tensor shardOf(const Tensor &whole, int64_t axis, int64_t index, int64_t count);
Tensor joined(const std::vector<Tensor> &shards, int64_t axis);

/// What each rank adds, summed in f32 (f64 for f64, 64 bits for integers) in rank order and rounded once. An
/// error if they are not of one type and shape.
Result<Tensor> sumOf(const std::vector<Tensor> &parts);

/// How the inputs and outputs of a graph lie over ranks.
struct PortShard {
  std::string name;
  std::optional<PortPlan::Shard> shard; ///< nothing: every rank has all of it
};
/// Rank `rank`'s of a whole graph's inputs. An error if an input has no dim that can be divided so; names
/// that no port has stay as they are.
Result<NamedTensors> inputsOf(const NamedTensors &whole, const std::vector<PortShard> &ports, int64_t rank,
                              int64_t ranks);
/// The whole graph's outputs, or some of them, from those of each rank.
NamedTensors joinOutputs(const std::vector<NamedTensors> &parts, const std::vector<PortShard> &ports);

} // namespace fusion
