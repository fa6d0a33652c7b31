#include "runtime/Runner.h"

#include "runtime/MemoryNeed.h"
#include "runtime/collective/Agreement.h"
#include "runtime/cuda/NvrtcProcess.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace fusion {

Executor::Runner::Runner(const ProgramPlan &plan, const ExecutorOptions &options,
                         std::shared_ptr<Backend> device, WeightStore store, size_t weightNeed)
    : plan(plan), options(options), shapePlanner(plan), algorithms(plan, options),
      binder(plan, shapePlanner.sizes()), backend(std::move(device)), weights(std::move(store)),
      weightNeed(weightNeed), writtenInputs(plan.buffers.size(), false),
      usersOf(shapePlanner.sizes().places.size()), pools(plan.buffers.size()) {
  const std::vector<ShapeIndex::Launch> &launches = shapePlanner.sizes().launches;
  for (uint32_t i = 0; i < launches.size(); ++i)
    for (size_t j = 0; j < launches[i].arguments.size(); ++j) {
      const KernelArgument &argument = launches[i].source->arguments[j];
      if (bufferOf(argument) || std::holds_alternative<WorkspaceArgument>(argument))
        usersOf[launches[i].arguments[j].place].push_back(i);
      if (isWritten(argument))
        writtenInputs[*bufferOf(argument)] = true;
    }
}

Result<ShapeBucket *> Executor::Runner::bucketFor() {
  ShapeBucket *bucket = buckets.find(symbols);
  if (bucket && bucket->speculated)
    ++counted.speculated;
  if (bucket)
    NvrtcProcesses::dismiss();
  if (!bucket)
    for (ShapeBucket *near : buckets.near(shapePlanner, symbols))
      if (updateShapes(*near, symbols)) {
        bucket = &buckets.use(*near);
        break;
      }
  if (!bucket) {
    Result<ShapeBucket *> made = newBucket();
    if (!made)
      return made;
    bucket = *made;
  }
  bucket->speculated = false;
  std::vector<int64_t> step(symbols.size(), 0);
  if (!bucket->lastSymbols.empty())
    std::transform(symbols.begin(), symbols.end(), bucket->lastSymbols.begin(), step.begin(), std::minus());
  bucket->keepsStep = bucket->lastStep.empty() || step == bucket->lastStep;
  if (!bucket->lastSymbols.empty())
    bucket->lastStep = std::move(step);
  bucket->lastSymbols = symbols;
  return bucket;
}

bool Executor::Runner::updateShapes(ShapeBucket &bucket, std::span<const int64_t> values) {
  if (!shapePlanner.update(bucket.plan, values, changed))
    return false;
  ++counted.updates;
  if (bucket.recorded)
    bucket.recorded->stale.insert(bucket.recorded->stale.end(), changed.begin(), changed.end());
  return true;
}

Result<ShapeBucket *> Executor::Runner::newBucket() {
  const SymbolValues named = shapePlanner.named(symbols);
  if (options.communicator)
    if (Status status = agreeOn(named); !status)
      return status.error();
  if (Status status = selectAlgorithms(named); !status)
    return status.error();
  Result<ShapePlan> shapes = shapePlanner.plan(symbols, options.communicator.get(),
                                               [&](size_t step, std::span<const uint32_t> candidates) {
                                                 return algorithms.choose(step, candidates);
                                               });
  if (!shapes)
    return shapes.error();
  if (Status status = checkMemory(*shapes); !status)
    return status.error();
  if (Status status = prepareLaunches(*shapes); !status)
    return status.error();
  if (buckets.full())
    if (Status status = backend->synchronize(); !status) // what goes may be running
      return status.error();
  ++counted.plans;
  return &buckets.insert(std::move(*shapes));
}

Status Executor::Runner::checkMemory(const ShapePlan &shapes) const {
  MemoryNeed need = memoryOf(plan, shapes);
  need.weights = weightNeed;
  return checkFits(need, availableBytes(*backend, options.memoryLimit), backend->description());
}

Status Executor::Runner::agreeOn(const SymbolValues &symbols) {
  Communicator &communicator = *options.communicator;
  auto text = describeRun(plan, symbols, {communicator.description()}, &communicator);
  return text ? agree(communicator.host(), *text) : Status(text.error());
}

Status Executor::Runner::selectAlgorithms(const SymbolValues &symbols) {
  if (algorithms.empty())
    return {};
  Result<bool> capturing = backend->capturing(); // nothing can be measured then
  if (!capturing)
    return capturing.error();
  // All kernels that may be needed, at once: what is measured is part of them. If one does not compile,
  // whoever needs it says so.
  auto compile = [&] { (void)backend->prepare(kernelsAt(plan, symbols)); };
  return algorithms.decide(symbols, !*capturing, backend->description(), compile);
}

Status Executor::Runner::prepareLaunches(const ShapePlan &shapes) {
  std::vector<uint32_t> kernels;
  for (const ShapePlan::Launch &launch : shapes.launches)
    kernels.push_back(launch.kernel);
  // What the first rank compiles, the others find in the cache.
  if (options.communicator && options.rank > 0)
    if (Status status = meetOthers(); !status)
      return status;
  if (Status status = backend->prepare(kernels); !status)
    return status;
  if (!options.communicator)
    return {};
  if (options.rank == 0)
    if (Status status = meetOthers(); !status)
      return status;
  if (shapes.roundBytes == 0)
    return {};
  if (Status status = backend->synchronize(); !status) // areas are replaced only while no kernel runs
    return status;
  Result<void *> made = options.communicator->exchange(shapes.roundBytes);
  if (!made)
    return made.error();
  exchange = *made;
  return {};
}

NamedTensors Executor::Runner::results(const Frame &frame) const {
  NamedTensors outputs;
  const ShapePlan &shapes = frame.bucket->plan;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PortPlan &port = plan.outputs[i];
    void *address = static_cast<std::byte *>(frame.addresses[port.buffer]) + shapes.outputOffsets[i];
    const std::shared_ptr<void> *found = frame.owners[port.buffer];
    const std::shared_ptr<void> owner = found ? *found : weights.owner();
    const Shape &shape = shapes.outputShapes[i], &strides = shapes.outputStrides[i];
    const Device place = backend->device();
    outputs[port.name] = port.strides.empty()
                             ? Tensor::wrap(port.type, shape, address, owner, place)
                             : Tensor::wrapStrided(port.type, shape, strides, address, owner, place);
  }
  return outputs;
}

Tensor Executor::Runner::hostTensor(DType type, const Shape &shape) {
  const size_t bytes = static_cast<size_t>(elementCount(shape)) * byteSize(type);
  std::shared_ptr<void> memory = backend->allocateHost(bytes);
  return memory ? Tensor::wrap(type, shape, memory.get(), memory) : Tensor::uninitialized(type, shape);
}

Status Executor::Runner::bringToHost(NamedTensors &results) {
  if (backend->sharesHostMemory())
    return {};
  for (const PortPlan &port : plan.outputs) {
    if (!port.strides.empty())
      continue;
    Tensor &result = results.find(port.name)->second, host = hostTensor(result.type(), result.shape());
    if (Status status = backend->download(host.data(), result.data(), host.bytes()); !status)
      return status;
    result = std::move(host);
  }
  return {};
}

Status Executor::Runner::meetOthers(const Frame *frame) {
  if (!options.communicator)
    return {};
  Rendezvous &host = options.communicator->host();
  std::string sizes;
  if (frame) {
    std::vector<int64_t> values = frame->bucket->plan.symbols;
    values[shapePlanner.sizes().rank] = 0;
    sizes.assign(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(int64_t));
  }
  auto told = host.gather(sizes);
  if (!told)
    return told.error();
  for (size_t rank = 1; rank < told->size(); ++rank)
    if ((*told)[rank] != told->front())
      return badInput(fmt::format("the inputs of rank {} have other shapes than those of rank 0", rank));
  return {};
}

Status Executor::Runner::checkOthers() {
  return options.communicator ? options.communicator->check() : Status();
}

Status Executor::Runner::start(Frame &frame) {
  if (Status status = findRecording(frame); !status)
    return status;
  if (Status status = meetOthers(&frame); !status)
    return status;
  return execute(frame);
}

Status Executor::Runner::runOnce(Frame &frame) {
  if (Status status = start(frame); !status)
    return status;
  return finish();
}

Status Executor::Runner::finish() {
  if (Status status = backend->synchronize(); !status)
    return status;
  return checkOthers();
}

/// From the start of a run until all of it is queued.
class HostTime {
public:
  explicit HostTime(double &microseconds) : microseconds(microseconds) {}
  ~HostTime() {
    microseconds =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }

private:
  double &microseconds;
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

Result<Executor::Runner::Frame> Executor::Runner::begin(const NamedTensors &inputs) {
  HostTime time(counted.hostMicroseconds);
  ++counted.runs;
  Result<Frame> frame = prepare(inputs);
  if (frame)
    if (Status status = start(*frame); !status)
      return status.error();
  return frame;
}

Result<NamedTensors> Executor::Runner::run(const NamedTensors &inputs, Results where) {
  std::lock_guard lock(mutex);
  StreamGuard guard(*backend, std::nullopt);
  if (!guard.entered)
    return guard.entered.error();
  Result<Frame> frame = begin(inputs);
  if (!frame)
    return frame.error();
  NamedTensors outputs = results(*frame); // before the next step's shapes
  const bool waits = where != Results::Queued || options.communicator;
  if (Status status = noteEnd(*frame, !waits); !status)
    return status.error();
  Status speculated = speculate(*frame);
  if (Status status = waits ? finish() : Status(); !status)
    return status.error();
  spareFrame = std::move(*frame);
  if (!speculated)
    return speculated.error();
  if (where == Results::Host && !options.keepOutputsOnDevice)
    if (Status status = bringToHost(outputs); !status)
      return status.error();
  return outputs;
}

Result<NamedTensors> Executor::Runner::enqueue(const NamedTensors &inputs, void *stream) {
  std::lock_guard lock(mutex);
  StreamGuard guard(*backend, stream);
  if (!guard.entered)
    return guard.entered.error();
  Result<Frame> frame = begin(inputs);
  if (!frame)
    return frame.error();
  NamedTensors outputs = results(*frame);
  if (Status status = noteEnd(*frame, /*isQueued=*/false); !status)
    return status.error();
  Status speculated = speculate(*frame);
  spareFrame = std::move(*frame);
  if (!speculated)
    return speculated.error();
  return outputs;
}

Status Executor::Runner::noteEnd(const Frame &frame, bool isQueued) {
  constexpr size_t mostKnown = 1024;
  if (!isQueued || ends.size() > mostKnown)
    ends.clear();
  if (!isQueued)
    return {};
  Result<std::shared_ptr<void>> end = backend->mark();
  if (!end)
    return end.error();
  for (const PortPlan &port : plan.outputs)
    if (const std::shared_ptr<void> *owner = frame.owners[port.buffer])
      ends[owner->get()] = *end;
  return {};
}

Result<NamedTensors> Executor::Runner::fetch(const NamedTensors &tensors) {
  std::lock_guard lock(mutex);
  StreamGuard guard(*backend, std::nullopt);
  if (!guard.entered)
    return guard.entered.error();
  NamedTensors copies;
  std::vector<Backend::Download> downloads;
  for (const auto &[name, tensor] : tensors) {
    Tensor copy = tensor.device().kind == Device::Kind::Host ? tensor.dense() : tensor;
    if (tensor.device().kind != Device::Kind::Host) {
      if (!(tensor.device() == backend->device()))
        return badInput(fmt::format("{} is on GPU {}, the program runs on {}", name, tensor.device().ordinal,
                                    backend->description()));
      copy = hostTensor(tensor.type(), tensor.shape());
      if (tensor.isDense()) {
        auto end = ends.find(tensor.storage().get());
        downloads.push_back(
            {copy.data(), tensor.data(), copy.bytes(), end == ends.end() ? nullptr : end->second});
      } else if (Status status = backend->transfer(tensor, copy); !status) {
        return status.error();
      }
    }
    copies[name] = std::move(copy);
  }
  if (Status status = backend->downloadAll(downloads); !status)
    return status.error();
  return copies;
}

Result<NamedTensors> Executor::Runner::place(const NamedTensors &tensors) {
  if (backend->sharesHostMemory())
    return tensors;
  std::lock_guard lock(mutex);
  StreamGuard guard(*backend, std::nullopt);
  if (!guard.entered)
    return guard.entered.error();
  NamedTensors placed;
  for (const auto &[name, tensor] : tensors) {
    if (tensor.device().kind != Device::Kind::Host) {
      placed[name] = tensor;
      continue;
    }
    Result<std::shared_ptr<void>> memory = backend->allocate(std::max<size_t>(tensor.bytes(), 1));
    if (!memory)
      return Error{memory.error().kind, fmt::format("{}: {}", name, memory.error().message)};
    Tensor copy = Tensor::wrap(tensor.type(), tensor.shape(), memory->get(), *memory, backend->device());
    if (Status status = backend->transfer(tensor, copy); !status)
      return status.error();
    placed[name] = std::move(copy);
  }
  return placed;
}

Status Executor::Runner::synchronize() {
  std::lock_guard lock(mutex);
  StreamGuard guard(*backend, std::nullopt);
  return guard.entered ? backend->synchronize() : guard.entered;
}

RunStatistics Executor::Runner::statistics() {
  std::lock_guard lock(mutex);
  counted.evaluations = shapePlanner.evaluations();
  counted.weightBytes = weights.deviceBytes();
  counted.temporaryBytes = arenaCapacity + keptZeroCapacity;
  counted.peakBytes = backend->peakBytes();
  return counted;
}

} // namespace fusion
