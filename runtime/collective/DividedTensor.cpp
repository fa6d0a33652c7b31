#include "runtime/collective/DividedTensor.h"

#include <fmt/format.h>

namespace fusion {

Tensor makeDivided(DividedTensor tensor, DType type, Shape shard) {
  if (tensor.shard)
    shard[static_cast<size_t>(tensor.shard->axis)] *= tensor.shard->count;
  auto held = std::make_shared<DividedTensor>(std::move(tensor));
  void *data = held.get();
  return Tensor::wrap(type, std::move(shard), data, std::move(held), onAllRanks);
}

const DividedTensor *dividedTensor(const Tensor &tensor) {
  return tensor.device() == onAllRanks ? tensor.as<DividedTensor>() : nullptr;
}

Result<NamedTensors> inputsOnRank(const NamedTensors &whole, const std::vector<PortShard> &ports,
                                  int64_t rank, int64_t ranks, const void *group) {
  NamedTensors rest = whole, shards;
  for (const PortShard &port : ports) {
    auto input = rest.find(port.name);
    const DividedTensor *divided = input == rest.end() ? nullptr : dividedTensor(input->second);
    if (!divided)
      continue;
    const bool fits = divided->shard.has_value() == port.shard.has_value() &&
                      (!port.shard || (divided->shard->axis == port.shard->axis &&
                                       divided->shard->count == port.shard->count));
    if (divided->group.get() != group || !fits)
      return badInput(fmt::format(
          "input {} lies on the ranks of another program, or is divided in another way: fetch it first",
          port.name));
    shards[port.name] = divided->shards[static_cast<size_t>(rank)];
    rest.erase(input);
  }
  Result<NamedTensors> local = inputsOf(rest, ports, rank, ranks);
  if (local)
    local->merge(shards);
  return local;
}

} // namespace fusion
