#include "runtime/api/RankReference.h"

#include "ir/dialect/SymbolicShapes.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

using namespace mlir;

namespace fusion {

namespace {

/// Where the ranks' threads meet: every rank brings its part, the last to come adds them up.
class Meeting {
public:
  explicit Meeting(int64_t ranks) : parts(static_cast<size_t>(ranks)) {}

  Result<Tensor> sum(int64_t rank, const Tensor &part) {
    std::unique_lock lock(mutex);
    if (stopped)
      return badInput("another rank stopped");
    parts[static_cast<size_t>(rank)] = part;
    const uint64_t round = rounds;
    if (++arrived == parts.size()) {
      total = addUp();
      arrived = 0;
      ++rounds;
      changed.notify_all();
    } else {
      changed.wait(lock, [&] { return stopped || rounds != round; });
      if (rounds == round)
        return badInput("another rank stopped");
    }
    return total;
  }

  void stop() {
    std::lock_guard lock(mutex);
    stopped = true;
    changed.notify_all();
  }

private:
  Result<Tensor> addUp() const {
    const Tensor &first = parts.front();
    for (const Tensor &part : parts)
      if (part.shape() != first.shape() || part.type() != first.type())
        return badInput(fmt::format("the ranks bring {} and {}", shapeText(first), shapeText(part)));
    auto add = [&]<class T>(T, DType wide) {
      Tensor sums = Tensor::zeros(wide, first.shape());
      for (const Tensor &part : parts) {
        Tensor addends = part.convertedTo(wide);
        for (int64_t i = 0; i < sums.size(); ++i)
          sums.as<T>()[i] += addends.as<T>()[i];
      }
      return sums.convertedTo(first.type());
    };
    if (first.type() == DType::F64)
      return add(double(), DType::F64);
    return isFloat(first.type()) ? add(float(), DType::F32) : add(int64_t(), DType::I64);
  }
  static std::string shapeText(const Tensor &tensor) {
    return fmt::format("{} {}", shapeString(tensor.shape()), name(tensor.type()));
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> parts;
  Result<Tensor> total = Tensor();
  size_t arrived = 0;
  uint64_t rounds = 0;
  bool stopped = false;
};

struct Strides {
  int64_t outer = 1, inner = 1; ///< products of the dims before and behind the axis
};
Strides around(const Shape &shape, int64_t axis) {
  auto times = [](int64_t a, int64_t b) { return a * b; };
  return {std::accumulate(shape.begin(), shape.begin() + axis, int64_t(1), times),
          std::accumulate(shape.begin() + axis + 1, shape.end(), int64_t(1), times)};
}
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

Result<RankReference> RankReference::create(func::FuncOp function, const std::string &baseFolder) {
  RankReference group;
  group.function = function;
  group.baseFolder = baseFolder;
  if (auto ranks = function->getAttrOfType<IntegerAttr>(nn::ranksAttr))
    group.ranks = ranks.getInt();
  // Also the check that the weights are there.
  auto one = Interpreter::create(function, baseFolder);
  if (!one)
    return one.error();
  auto placed = [](std::string name, Attribute attribute) {
    Placement placement{std::move(name), -1, 1};
    if (auto piece = llvm::dyn_cast_or_null<DenseI64ArrayAttr>(attribute))
      placement = {placement.name, piece[0], piece[1]};
    return placement;
  };
  for (auto [index, port] : llvm::enumerate(one->inputs()))
    group.arguments.push_back(
        placed(port.name, function.getArgAttr(static_cast<unsigned>(index), nn::shardAttr)));
  for (auto [index, name] : llvm::enumerate(one->outputs()))
    group.results.push_back(
        placed(name, function.getResultAttr(static_cast<unsigned>(index), nn::shardAttr)));
  return group;
}

Result<NamedTensors> RankReference::run(const NamedTensors &inputs) const {
  Meeting meeting(ranks);
  std::vector<std::optional<Result<NamedTensors>>> outcomes(static_cast<size_t>(ranks));
  auto runRank = [&](int64_t rank) -> Result<NamedTensors> {
    NamedTensors local = inputs;
    for (const Placement &placement : arguments) {
      auto input = local.find(placement.name);
      if (placement.axis < 0 || input == local.end())
        continue; // the interpreter says what is missing
      const Shape &shape = input->second.shape();
      if (placement.axis >= static_cast<int64_t>(shape.size()) ||
          shape[static_cast<size_t>(placement.axis)] % placement.pieces != 0)
        return badInput(fmt::format("input {} has no dim {} that {} ranks can divide", placement.name,
                                    placement.axis, ranks));
      input->second =
          fusion::pieceOf(input->second, placement.axis, pieceOf(rank, placement), placement.pieces);
    }
    Interpreter::Options options;
    options.symbols[std::string(rankSymbol)] = rank;
    options.allReduce = [&, rank](const Tensor &part, std::string_view) { return meeting.sum(rank, part); };
    auto interpreter = Interpreter::create(function, baseFolder, options);
    return interpreter ? interpreter->run(local) : Result<NamedTensors>(interpreter.error());
  };
  {
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        auto &outcome = outcomes[static_cast<size_t>(rank)];
        outcome = runRank(rank);
        if (!*outcome)
          meeting.stop();
      });
  }
  // The rank that failed by itself, not those that it stopped, tells more: it is the one with another
  // message.
  const Error *failure = nullptr;
  for (auto &outcome : outcomes)
    if (!*outcome && (!failure || failure->message.find("another rank stopped") != std::string::npos))
      failure = &outcome->error();
  if (failure)
    return *failure;
  NamedTensors whole;
  for (const Placement &placement : results) {
    std::vector<Tensor> pieces;
    for (int64_t piece = 0; piece < placement.pieces; ++piece)
      pieces.push_back((**outcomes[static_cast<size_t>(piece * ranks / placement.pieces)])[placement.name]);
    whole[placement.name] = placement.axis < 0 ? pieces.front() : joined(pieces, placement.axis);
  }
  return whole;
}

} // namespace fusion
