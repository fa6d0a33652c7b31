#include "runtime/collective/Shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace fusion {

namespace {
struct Strides {
  int64_t outer = 1, inner = 1; ///< products of the dims before and after the axis
};
Strides around(const Shape &shape, int64_t axis) {
  auto times = [](int64_t a, int64_t b) { return a * b; };
  return {std::accumulate(shape.begin(), shape.begin() + axis, int64_t(1), times),
          std::accumulate(shape.begin() + axis + 1, shape.end(), int64_t(1), times)};
}

std::string shapeText(const Tensor &tensor) {
  return fmt::format("{} {}", shapeString(tensor.shape()), name(tensor.type()));
}
} // namespace

Tensor shardOf(const Tensor &whole, int64_t axis, int64_t index, int64_t count) {
  Shape shape = whole.shape();
  const auto [outer, inner] = around(shape, axis);
  const auto row =
      static_cast<size_t>(shape[static_cast<size_t>(axis)] / count * inner) * byteSize(whole.type());
  shape[static_cast<size_t>(axis)] /= count;
  Tensor shard = Tensor::uninitialized(whole.type(), shape);
  for (int64_t i = 0; i < outer; ++i)
    std::copy_n(static_cast<const std::byte *>(whole.data()) + static_cast<size_t>(i * count + index) * row,
                row, static_cast<std::byte *>(shard.data()) + static_cast<size_t>(i) * row);
  return shard;
}

Tensor joined(const std::vector<Tensor> &shards, int64_t axis) {
  Shape shape = shards.front().shape();
  const auto [outer, inner] = around(shape, axis);
  const auto row =
      static_cast<size_t>(shape[static_cast<size_t>(axis)] * inner) * byteSize(shards.front().type());
  shape[static_cast<size_t>(axis)] *= static_cast<int64_t>(shards.size());
  Tensor whole = Tensor::uninitialized(shards.front().type(), shape);
  for (int64_t i = 0; i < outer; ++i)
    for (size_t j = 0; j < shards.size(); ++j)
      std::copy_n(static_cast<const std::byte *>(shards[j].data()) + static_cast<size_t>(i) * row, row,
                  static_cast<std::byte *>(whole.data()) +
                      (static_cast<size_t>(i) * shards.size() + j) * row);
  return whole;
}

Result<Tensor> sumOf(const std::vector<Tensor> &parts) {
  const Tensor &first = parts.front();
  for (const Tensor &part : parts)
    if (part.shape() != first.shape() || part.type() != first.type())
      return badInput(fmt::format("the ranks bring {} and {}", shapeText(first), shapeText(part)));
  auto add = [&]<class T>(T, DType wide) {
    Tensor sums = first.convertedTo(wide).clone(); // not zeros: 0 + -0 is 0
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      Tensor addends = parts[rank].convertedTo(wide);
      for (int64_t i = 0; i < sums.size(); ++i)
        sums.as<T>()[i] += addends.as<T>()[i];
    }
    return sums.convertedTo(first.type());
  };
  if (first.type() == DType::F64)
    return add(double(), DType::F64);
  return isFloat(first.type()) ? add(float(), DType::F32) : add(int64_t(), DType::I64);
}

Result<NamedTensors> inputsOf(const NamedTensors &whole, const std::vector<PortShard> &ports, int64_t rank,
                              int64_t ranks) {
  NamedTensors local = whole;
  for (const PortShard &port : ports) {
    auto input = local.find(port.name);
    if (!port.shard || input == local.end())
      continue; // whoever runs them says what is missing
    const auto [axis, count] = *port.shard;
    if (input->second.device().kind != Device::Kind::Host)
      return badInput(
          fmt::format("input {} is divided among {} ranks: give a host tensor", port.name, ranks));
    const Shape &shape = input->second.shape();
    if (axis >= static_cast<int64_t>(shape.size()) || shape[static_cast<size_t>(axis)] % count != 0)
      return badInput(fmt::format("input {} has no dim {} that {} ranks can divide", port.name, axis, ranks));
    input->second = shardOf(input->second.dense(), axis, rank * count / ranks, count);
  }
  return local;
}

NamedTensors joinOutputs(const std::vector<NamedTensors> &parts, const std::vector<PortShard> &ports) {
  const auto ranks = static_cast<int64_t>(parts.size());
  NamedTensors whole;
  for (const PortShard &port : ports) {
    if (!parts.front().contains(port.name))
      continue;
    if (!port.shard) {
      whole[port.name] = parts.front().at(port.name);
      continue;
    }
    std::vector<Tensor> shards;
    for (int64_t shard = 0; shard < port.shard->count; ++shard)
      shards.push_back(parts[static_cast<size_t>(shard * ranks / port.shard->count)].at(port.name));
    whole[port.name] = joined(shards, port.shard->axis);
  }
  return whole;
}

} // namespace fusion
