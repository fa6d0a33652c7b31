#include "runtime/RankGroup.h"

#include "ir/base/Parallel.h"
#include "runtime/CompileKernels.h"
#include "runtime/cuda/Driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace fusion {

/// One thread a rank, asleep between calls.
class RankGroup::Threads {
public:
  explicit Threads(size_t count) : outcomes(count) {
    for (size_t rank = 0; rank < count; ++rank)
      threads.emplace_back([this, rank] { serve(rank); });
  }
  ~Threads() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread &thread : threads)
      thread.join();
  }

  std::vector<Status> run(const std::function<Status(size_t)> &work) {
    std::unique_lock lock(mutex);
    current = &work;
    left = threads.size();
    ++calls;
    wake.notify_all();
    done.wait(lock, [&] { return left == 0; });
    return outcomes;
  }

private:
  void serve(size_t rank) {
    InlineLoops ownLoops; // ranks wait for each other: no loop of one may keep another's from running
    std::unique_lock lock(mutex);
    for (uint64_t seen = 0;;) {
      wake.wait(lock, [&] { return stopping || calls != seen; });
      if (stopping)
        return;
      seen = calls;
      lock.unlock();
      Status outcome = (*current)(rank);
      lock.lock();
      outcomes[rank] = std::move(outcome);
      if (--left == 0)
        done.notify_all();
    }
  }

  std::mutex mutex;
  std::condition_variable wake, done;
  const std::function<Status(size_t)> *current = nullptr;
  std::vector<Status> outcomes;
  size_t left = 0;
  uint64_t calls = 0;
  bool stopping = false;
  std::vector<std::thread> threads;
};

RankGroup::RankGroup(int ranks)
    : rendezvous(ranks), communicators(static_cast<size_t>(ranks)), executors(static_cast<size_t>(ranks)),
      threads(std::make_unique<Threads>(static_cast<size_t>(ranks))) {}

RankGroup::~RankGroup() {
  // Together: to free one GPU's memory, a driver may wait for what runs on another that reaches it.
  (void)onAll([&](size_t rank) {
    executors[rank].reset();
    return Status();
  });
}

Status RankGroup::onAll(const std::function<Status(size_t)> &work) {
  constexpr std::string_view mark = "rank ";
  std::vector<Status> outcomes = threads->run([&](size_t rank) -> Status {
    Status status = work(rank);
    if (status)
      return status;
    Error error = status.error();
    if (!error.message.starts_with(mark))
      error.message = fmt::format("rank {}: {}", rank, error.message);
    if (communicators[rank] && error.kind != ErrorKind::BadInput)
      communicators[rank]->stop(error.message);
    else
      rendezvous.member(static_cast<int>(rank))->abandon(error.message);
    return error;
  });
  // Those that another stopped carry its words.
  for (Status &outcome : outcomes)
    if (!outcome)
      return outcome;
  return {};
}

Result<std::unique_ptr<RankGroup>> RankGroup::create(ProgramPlan plan, ExecutorOptions options) {
  const bool emulate = options.target == ExecutorOptions::Target::Emulate;
  if (plan.ranks < 1 || plan.ranks > 64)
    return badInput(fmt::format("a program for {} ranks cannot run in one process", plan.ranks));
  if (!emulate) {
    if (auto driver = cuda::Driver::instance(); !driver)
      return driver.error();
    if (const int count = cuda::deviceCount(); count < plan.ranks)
      return environment(
          fmt::format("{} ranks need {} GPUs: this machine has {}", plan.ranks, plan.ranks, count));
  }
  std::unique_ptr<RankGroup> group(new RankGroup(static_cast<int>(plan.ranks)));
  if (Status status = group->open(std::move(plan), std::move(options)); !status)
    return status.error();
  return group;
}

Status RankGroup::open(ProgramPlan plan, ExecutorOptions options) {
  for (const PortPlan &port : plan.inputs)
    inputs.push_back({port.name, port.shard});
  for (const PortPlan &port : plan.outputs)
    (port.strides.empty() ? outputs : caches).push_back({port.name, port.shard});
  const bool emulate = options.target == ExecutorOptions::Target::Emulate;
  Status status = onAll([&](size_t rank) -> Status {
    const int number = static_cast<int>(rank);
    auto made = emulate ? makeEmulatedCommunicator(rendezvous.member(number))
                        : makePeerCommunicator(rendezvous.member(number), number);
    if (!made)
      return made.error();
    communicators[rank] = std::move(*made);
    return {};
  });
  auto makeExecutor = [&](size_t rank) -> Status {
    ExecutorOptions own = options;
    own.rank = own.ordinal = static_cast<int>(rank);
    own.keepOutputsOnDevice = false;
    own.communicator = communicators[rank];
    auto executor = Executor::create(plan, std::move(own));
    if (!executor)
      return executor.error();
    executors[rank] = std::move(*executor);
    return {};
  };
  // What the first one compiles, the others find.
  for (bool first : {true, false})
    if (status)
      status = onAll([&](size_t rank) { return (rank == 0) == first ? makeExecutor(rank) : Status(); });
  return status;
}

Status RankGroup::together(const std::function<Status(size_t, Executor &)> &work) {
  std::lock_guard lock(mutex);
  if (!ended)
    return ended;
  Status status = onAll([&](size_t rank) { return work(rank, *executors[rank]); });
  if (status)
    return status;
  if (status.error().kind == ErrorKind::BadInput)
    rendezvous.restart();
  else
    ended = status;
  return status;
}

Result<NamedTensors> RankGroup::inputsOnRank(const NamedTensors &whole, size_t rank) const {
  return fusion::inputsOnRank(whole, inputs, static_cast<int64_t>(rank),
                              static_cast<int64_t>(executors.size()), mark.get());
}

Result<NamedTensors> RankGroup::run(const NamedTensors &whole) {
  std::vector<NamedTensors> parts(executors.size());
  Status status = together([&](size_t rank, Executor &executor) -> Status {
    auto local = inputsOnRank(whole, rank);
    if (!local)
      return local.error();
    auto results = executor.run(*local);
    if (!results)
      return results.error();
    parts[rank] = std::move(*results);
    return {};
  });
  if (!status)
    return status.error();
  NamedTensors results = joinOutputs(parts, outputs);
  for (const PortShard &cache : caches) {
    DividedTensor divided{{}, cache.shard, mark};
    for (const NamedTensors &part : parts)
      divided.shards.push_back(part.at(cache.name));
    const Tensor &first = divided.shards.front();
    results[cache.name] = makeDivided(divided, first.type(), first.shape());
  }
  return results;
}

Result<NamedTensors> RankGroup::fetch(const NamedTensors &tensors) {
  NamedTensors copies;
  std::vector<PortShard> divided;
  for (const auto &[name, tensor] : tensors) {
    const DividedTensor *shards = dividedTensor(tensor);
    if (shards && shards->group != mark)
      return badInput(name + " lies on the ranks of another program");
    if (shards)
      divided.push_back({name, shards->shard});
    else
      copies[name] = tensor.device().kind == Device::Kind::Host ? tensor.dense() : tensor;
  }
  if (divided.empty())
    return copies;
  std::vector<NamedTensors> parts(executors.size());
  Status status = together([&](size_t rank, Executor &executor) -> Status {
    NamedTensors own;
    for (const PortShard &port : divided)
      own[port.name] = dividedTensor(tensors.at(port.name))->shards[rank];
    auto fetched = executor.fetch(own);
    if (!fetched)
      return fetched.error();
    parts[rank] = std::move(*fetched);
    return {};
  });
  if (!status)
    return status.error();
  copies.merge(joinOutputs(parts, divided));
  return copies;
}

Result<std::vector<double>> RankGroup::bench(const NamedTensors &whole, int iterations, bool cold) {
  std::vector<std::vector<double>> times(executors.size());
  Status status = together([&](size_t rank, Executor &executor) -> Status {
    auto local = inputsOnRank(whole, rank);
    if (!local)
      return local.error();
    auto measured = executor.bench(*local, iterations, cold);
    if (!measured)
      return measured.error();
    times[rank] = std::move(*measured);
    return {};
  });
  if (!status)
    return status.error();
  std::vector<double> slowest = times.front();
  for (const std::vector<double> &rank : times)
    for (size_t i = 0; i < slowest.size(); ++i)
      slowest[i] = std::max(slowest[i], rank[i]);
  return slowest;
}

Result<std::vector<LaunchTiming>> RankGroup::profile(const NamedTensors &whole, int iterations) {
  std::vector<LaunchTiming> timings;
  Status status = together([&](size_t rank, Executor &executor) -> Status {
    auto local = inputsOnRank(whole, rank);
    if (!local)
      return local.error();
    auto measured = executor.profile(*local, iterations);
    if (!measured)
      return measured.error();
    if (rank == 0)
      timings = std::move(*measured);
    return {};
  });
  if (!status)
    return status.error();
  return timings;
}

std::string RankGroup::device() const {
  return fmt::format("{} × {}, {}", executors.size(), executors.front()->device(),
                     communicators.front()->description());
}

} // namespace fusion
