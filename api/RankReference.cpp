#include "api/RankReference.h"

#include "ir/dialect/Mesh.h"
#include "ir/dialect/SymbolicShapes.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <thread>

using namespace mlir;

namespace fusion {

namespace {

/// An all-reduce among threads: every rank brings its part, the last to come adds them up.
class ThreadAllReduce {
public:
  explicit ThreadAllReduce(int64_t ranks) : parts(static_cast<size_t>(ranks)) {}

  Result<Tensor> sum(int64_t rank, const Tensor &part) {
    std::unique_lock lock(mutex);
    if (stopped)
      return badInput("another rank stopped");
    parts[static_cast<size_t>(rank)] = part;
    const uint64_t round = rounds;
    if (++arrived == parts.size()) {
      total = sumOf(parts);
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
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> parts;
  Result<Tensor> total = Tensor();
  size_t arrived = 0;
  uint64_t rounds = 0;
  bool stopped = false;
};
} // namespace

Result<RankReference> RankReference::create(func::FuncOp function, const std::string &baseFolder) {
  RankReference group;
  group.function = function;
  group.baseFolder = baseFolder;
  if (Status status = nn::checkSums(function); !status)
    return status.error();
  group.ranks = nn::ranksOf(function).value_or(1);
  // Also the check that the weights are there.
  auto one = Interpreter::create(function, baseFolder);
  if (!one)
    return one.error();
  auto placed = [](std::string name, Attribute attribute) {
    PortShard port{std::move(name), {}};
    if (auto shard = llvm::dyn_cast_or_null<DenseI64ArrayAttr>(attribute))
      port.shard = {shard[0], shard[1]};
    return port;
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
  ThreadAllReduce allReduce(ranks);
  std::vector<std::optional<Result<NamedTensors>>> outcomes(static_cast<size_t>(ranks));
  auto runRank = [&](int64_t rank) -> Result<NamedTensors> {
    auto local = inputsOf(inputs, arguments, rank, ranks);
    if (!local)
      return local.error();
    Interpreter::Options options;
    options.symbols[std::string(rankSymbol)] = rank;
    options.allReduce = [&, rank](const Tensor &part, std::string_view) { return allReduce.sum(rank, part); };
    auto interpreter = Interpreter::create(function, baseFolder, options);
    return interpreter ? interpreter->run(*local) : Result<NamedTensors>(interpreter.error());
  };
  {
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        auto &outcome = outcomes[static_cast<size_t>(rank)];
        outcome = runRank(rank);
        if (!*outcome)
          allReduce.stop();
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
  std::vector<NamedTensors> parts;
  for (auto &outcome : outcomes)
    parts.push_back(std::move(**outcome));
  return joinOutputs(parts, results);
}

} // namespace fusion
