#include "runtime/collective/Pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace fusion {

namespace {
struct Strides {
  int64_t outer = 1, inner = 1; ///< products of the dims before and behind the axis
};
Strides around(const Shape &shape, int64_t axis) {
  auto times = [](int64_t a, int64_t b) { return a * b; };
  return {std::accumulate(shape.begin(), shape.begin() + axis, int64_t(1), times),
          std::accumulate(shape.begin() + axis + 1, shape.end(), int64_t(1), times)};
}

std::string shapeText(const Tensor &tensor) { return fmt::format("{} {}", shapeString(tensor.shape()), name(tensor.type())); }
} // namespace

Tensor pieceOf(const Tensor &whole, int64_t axis, int64_t index, int64_t count) {
  Shape shape = whole.shape();
  const auto [outer, inner] = around(shape, axis);
  const auto row =
      static_cast<size_t>(shape[static_cast<size_t>(axis)] / count * inner) * byteSize(whole.type());
  shape[static_cast<size_t>(axis)] /= count;
  Tensor piece = Tensor::uninitialized(whole.type(), shape);
  for (int64_t i = 0; i < outer; ++i)
    std::copy_n(static_cast<const std::byte *>(whole.data()) + static_cast<size_t>(i * count + index) * row,
                row, static_cast<std::byte *>(piece.data()) + static_cast<size_t>(i) * row);
  return piece;
}

Tensor joined(const std::vector<Tensor> &pieces, int64_t axis) {
  Shape shape = pieces.front().shape();
  const auto [outer, inner] = around(shape, axis);
  const auto row =
      static_cast<size_t>(shape[static_cast<size_t>(axis)] * inner) * byteSize(pieces.front().type());
  shape[static_cast<size_t>(axis)] *= static_cast<int64_t>(pieces.size());
  Tensor whole = Tensor::uninitialized(pieces.front().type(), shape);
  for (int64_t i = 0; i < outer; ++i)
    for (size_t j = 0; j < pieces.size(); ++j)
      std::copy_n(static_cast<const std::byte *>(pieces[j].data()) + static_cast<size_t>(i) * row, row,
                  static_cast<std::byte *>(whole.data()) +
                      (static_cast<size_t>(i) * pieces.size() + j) * row);
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

Result<NamedTensors> inputsOf(const NamedTensors &whole, const std::vector<PortPiece> &ports, int64_t rank,
                              int64_t ranks) {
  NamedTensors local = whole;
  for (const PortPiece &port : ports) {
    auto input = local.find(port.name);
    if (!port.shard || input == local.end())
      continue; // whoever runs them says what is missing
    const auto [axis, pieces] = *port.shard;
    if (input->second.device().kind != Device::Kind::Host)
      return badInput(fmt::format("input {} is divided among {} ranks: give a host tensor", port.name, ranks));
    const Shape &shape = input->second.shape();
    if (axis >= static_cast<int64_t>(shape.size()) || shape[static_cast<size_t>(axis)] % pieces != 0)
      return badInput(fmt::format("input {} has no dim {} that {} ranks can divide", port.name, axis, ranks));
    input->second = pieceOf(input->second.dense(), axis, rank * pieces / ranks, pieces);
  }
  return local;
}

NamedTensors joinOutputs(const std::vector<NamedTensors> &parts, const std::vector<PortPiece> &ports) {
  const auto ranks = static_cast<int64_t>(parts.size());
  NamedTensors whole;
  for (const PortPiece &port : ports) {
    if (!parts.front().contains(port.name))
      continue;
    if (!port.shard) {
      whole[port.name] = parts.front().at(port.name);
      continue;
    }
    std::vector<Tensor> pieces;
    for (int64_t piece = 0; piece < port.shard->pieces; ++piece)
      pieces.push_back(parts[static_cast<size_t>(piece * ranks / port.shard->pieces)].at(port.name));
    whole[port.name] = joined(pieces, port.shard->axis);
  }
  return whole;
}

} // namespace fusion
