#include "runtime/RankProcess.h"

#include "ir/base/PrivateFolder.h"
#include "runtime/collective/ProcessCommunicator.h"
#include "runtime/collective/TcpRendezvous.h"
#include "runtime/cuda/Session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fusion {

static constexpr size_t mostToldAtOnce = 16 << 20;

/// What ranks that a user started on one host know each other by if no secret was given.
static Result<std::string> secretOfUser() {
  auto folder = PrivateFolder::open(KernelCache::defaultFolder(), /*make=*/true);
  if (folder)
    return (*folder)->secret("ranks");
  return environment(fmt::format("ranks know each other by a key in the cache folder {}, but {}; or set "
                                 "FUSION_RENDEZVOUS_SECRET to a random text, the same for all",
                                 KernelCache::defaultFolder(), folder.error().message));
}

static Result<std::unique_ptr<Communicator>> makeCommunicator(LaunchedRank place, bool emulate) {
  if (place.secret.empty() && !place.onOneHost)
    return environment(
        "ranks of several hosts know each other by a secret: set FUSION_RENDEZVOUS_SECRET to a random "
        "text, the same for all");
  if (place.secret.empty()) {
    auto secret = secretOfUser();
    if (!secret)
      return secret.error();
    place.secret = std::move(*secret);
  }
  std::shared_ptr<cuda::Session> session;
  if (!emulate) { // before the others are met: nobody need wait for a rank without a GPU
    auto driver = cuda::Driver::instance();
    if (!driver)
      return driver.error();
    if (const int count = cuda::deviceCount(); place.localRank >= count)
      return environment(fmt::format("rank {} is number {} of its host, which has {} GPUs", place.rank,
                                     place.localRank, count));
    session = std::make_shared<cuda::Session>(**driver, place.localRank);
    if (Status status = session->open(); !status)
      return status.error();
  }
  auto options = TcpRendezvousOptions::fromEnvironment();
  if (!options)
    return options.error();
  auto host = joinTcpRendezvous(place, *options);
  if (!host)
    return host.error();
  if (emulate)
    return makeSharedMemoryCommunicator(std::move(*host));
  return makeGpuProcessCommunicator(std::move(*host), std::move(session));
}

Result<std::unique_ptr<RankProcess>> RankProcess::join(ProgramPlan plan, ExecutorOptions options,
                                                       const LaunchedRank &place) {
  if (place.ranks != plan.ranks)
    return badInput(
        fmt::format("{} started {} ranks, but the program is for {}: --tp={} or another number of processes",
                    place.launcher, place.ranks, plan.ranks, place.ranks));
  std::unique_ptr<RankProcess> process(new RankProcess(place));
  if (Status status = process->told(process->open(std::move(plan), std::move(options))); !status)
    return status.error();
  return process;
}

RankProcess::~RankProcess() = default;

Status RankProcess::open(ProgramPlan plan, ExecutorOptions options) {
  for (const PortPlan &port : plan.inputs)
    inputs.push_back({port.name, port.shard});
  for (const PortPlan &port : plan.outputs)
    (port.strides.empty() ? outputs : caches).push_back({port.name, port.shard});
  auto made = makeCommunicator(place, options.target == ExecutorOptions::Target::Emulate);
  if (!made)
    return made.error();
  communicator = std::move(*made);
  options.rank = place.rank;
  options.ordinal = place.localRank;
  options.keepOutputsOnDevice = false;
  options.communicator = communicator;
  // What the first one compiles, the others find, if they share a cache.
  for (bool first : {true, false}) {
    if ((place.rank == 0) == first) {
      auto created = Executor::create(plan, options);
      if (!created)
        return created.error();
      executor = std::move(*created);
    }
    if (Status status = communicator->host().barrier(); !status)
      return status;
  }
  return {};
}

Status RankProcess::told(Status status) {
  if (status)
    return status;
  Error error = status.error();
  if (!error.message.starts_with("rank ") && !error.message.starts_with("the ranks "))
    error.message = fmt::format("rank {}: {}", place.rank, error.message);
  if (communicator)
    communicator->stop(error.message);
  return error;
}

Result<NamedTensors> RankProcess::localInputs(const NamedTensors &whole) const {
  return inputsOnRank(whole, inputs, place.rank, place.ranks, mark.get());
}

Result<NamedTensors> RankProcess::joinWithOthers(NamedTensors own, const std::vector<PortShard> &ports) {
  std::vector<NamedTensors> parts(static_cast<size_t>(place.ranks));
  for (const PortShard &port : ports) {
    const Tensor &tensor = own.at(port.name);
    if (!port.shard) {
      for (NamedTensors &part : parts)
        part[port.name] = tensor;
      continue;
    }
    for (NamedTensors &part : parts)
      part[port.name] = Tensor::uninitialized(tensor.type(), tensor.shape());
    for (size_t done = 0; done < tensor.bytes(); done += mostToldAtOnce) {
      const size_t count = std::min(mostToldAtOnce, tensor.bytes() - done);
      auto all = communicator->host().gather({static_cast<const char *>(tensor.data()) + done, count});
      if (!all)
        return all.error();
      for (size_t rank = 0; rank < parts.size(); ++rank) {
        if ((*all)[rank].size() != count)
          return badInput(fmt::format("output {} has another size at rank {} than at rank {}", port.name,
                                      rank, place.rank));
        std::memcpy(static_cast<char *>(parts[rank][port.name].data()) + done, (*all)[rank].data(), count);
      }
    }
  }
  return joinOutputs(parts, ports);
}

Result<NamedTensors> RankProcess::run(const NamedTensors &whole) {
  std::lock_guard lock(mutex);
  auto own = localInputs(whole);
  if (own)
    own = executor->run(*own);
  if (!own)
    return told(own.error()).error();
  auto results = joinWithOthers(*own, outputs);
  if (!results)
    return told(results.error()).error();
  for (const PortShard &cache : caches) {
    const Tensor &shard = own->at(cache.name);
    DividedTensor divided{std::vector<Tensor>(static_cast<size_t>(place.ranks)), cache.shard, mark};
    divided.shards[static_cast<size_t>(place.rank)] = shard;
    (*results)[cache.name] = makeDivided(std::move(divided), shard.type(), shard.shape());
  }
  return results;
}

Result<NamedTensors> RankProcess::fetch(const NamedTensors &tensors) {
  std::lock_guard lock(mutex);
  NamedTensors copies, own;
  std::vector<PortShard> divided;
  for (const auto &[name, tensor] : tensors) {
    const DividedTensor *shards = dividedTensor(tensor);
    if (shards && shards->group != mark)
      return told(badInput(name + " lies on the ranks of another program")).error();
    if (shards) {
      divided.push_back({name, shards->shard});
      own[name] = shards->shards[static_cast<size_t>(place.rank)];
    } else {
      copies[name] = tensor.device().kind == Device::Kind::Host ? tensor.dense() : tensor;
    }
  }
  auto fetched = executor->fetch(own);
  if (fetched)
    fetched = joinWithOthers(std::move(*fetched), divided);
  if (!fetched)
    return told(fetched.error()).error();
  copies.merge(*fetched);
  return copies;
}

Result<std::vector<double>> RankProcess::bench(const NamedTensors &whole, int iterations, bool cold) {
  std::lock_guard lock(mutex);
  auto local = localInputs(whole);
  if (!local)
    return told(local.error()).error();
  auto times = executor->bench(*local, iterations, cold);
  if (!times)
    return told(times.error()).error();
  auto all = communicator->host().gather(
      {reinterpret_cast<const char *>(times->data()), times->size() * sizeof(double)});
  if (!all)
    return all.error();
  for (const std::string &bytes : *all) // of each run the slowest rank's
    for (size_t i = 0; i < std::min(times->size(), bytes.size() / sizeof(double)); ++i) {
      double time = 0;
      std::memcpy(&time, bytes.data() + i * sizeof time, sizeof time);
      (*times)[i] = std::max((*times)[i], time);
    }
  return times;
}

Result<std::vector<LaunchTiming>> RankProcess::profile(const NamedTensors &whole, int iterations) {
  std::lock_guard lock(mutex);
  auto local = localInputs(whole);
  if (!local)
    return told(local.error()).error();
  auto timings = executor->profile(*local, iterations);
  return timings ? std::move(timings) : Result<std::vector<LaunchTiming>>(told(timings.error()).error());
}

std::string RankProcess::device() const {
  return fmt::format("{} × {}, {}", place.ranks, executor->device(), communicator->description());
}

} // namespace fusion
