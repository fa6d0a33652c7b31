#include "runtime/Runner.h"

#include "ir/base/BindSymbols.h"
#include "runtime/Binding.h"
#include "runtime/collective/Agreement.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

static constexpr uintptr_t kernelAlignment = 16;
static constexpr size_t maxRecordings = 4;

Executor::Runner::Runner(const ProgramPlan &plan, const ExecutorOptions &options,
                         std::unique_ptr<Backend> device, WeightStore store)
    : plan(plan), options(options), shapePlanner(plan), backend(std::move(device)), weights(std::move(store)),
      writtenInputs(plan.buffers.size(), false), pools(plan.buffers.size()) {
  for (const KernelLaunch &launch : plan.launches)
    for (const KernelLaunch::Argument &argument : launch.arguments)
      if (argument.buffer && argument.written)
        writtenInputs[*argument.buffer] = true;
}

Result<ShapeBucket *> Executor::Runner::bucketFor(const NamedTensors &inputs) {
  std::vector<int64_t> key;
  bool plausible = inputs.size() == plan.inputs.size();
  for (const PortPlan &port : plan.inputs) {
    auto found = inputs.find(port.name);
    plausible = plausible && found != inputs.end() && found->second.type() == port.type;
    if (!plausible)
      break;
    key.push_back(found->second.rank());
    key.insert(key.end(), found->second.shape().begin(), found->second.shape().end());
  }
  if (ShapeBucket *bucket = plausible ? buckets.find(key) : nullptr)
    return bucket;
  Result<SymbolValues> symbols = bindInputs(plan, inputs);
  if (!symbols)
    return symbols.error();
  symbols->emplace(rankSymbol, options.rank);
  Result<ShapePlan> shapes = shapePlanner.plan(*symbols, options.communicator.get());
  if (options.communicator)
    if (Status status = agreeOn(*symbols); !status)
      return status.error();
  if (!shapes)
    return shapes.error();
  if (Status status = prepareLaunches(*shapes); !status)
    return status.error();
  return &buckets.insert(std::move(key), std::move(*shapes));
}

Status Executor::Runner::agreeOn(const SymbolValues &symbols) {
  Communicator &communicator = *options.communicator;
  auto text = describeRun(plan, symbols, {communicator.description()}, &communicator);
  return text ? agree(communicator.host(), *text) : Status(text.error());
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

Status Executor::Runner::growArena(size_t bytes) {
  if (bytes <= arenaCapacity)
    return {};
  // Shapes that grow step by step, as in a decode loop, shall not move it at every step.
  const size_t roomy = std::max(bytes, arenaCapacity + arenaCapacity / 4);
  arena = nullptr; // first, so that the old and the new one need not fit together
  arenaCapacity = 0;
  buckets.dropRecordings();
  Result<std::shared_ptr<void>> memory = backend->allocate(roomy);
  if (memory)
    bytes = roomy;
  else if (roomy > bytes)
    memory = backend->allocate(bytes);
  if (!memory)
    return Error{memory.error().kind, "temporaries: " + memory.error().message};
  arena = *memory;
  arenaCapacity = bytes;
  return {};
}

Result<bool> Executor::Runner::isUsable(const PortPlan &port, const Tensor &tensor) const {
  bool onHost = tensor.device().kind == Device::Kind::Host;
  if (!onHost && !(tensor.device() == backend->device()))
    return badInput(fmt::format("input {} is on GPU {}, the program runs on {}", port.name,
                                tensor.device().ordinal, backend->description()));
  bool reachable = !onHost || backend->sharesHostMemory();
  bool aligned = tensor.data() && reinterpret_cast<uintptr_t>(tensor.data()) % kernelAlignment == 0;
  return reachable && aligned;
}

Status Executor::Runner::placeCache(const PortPlan &port, const Shape &strides, const Tensor &tensor, Frame &frame) {
  Result<bool> usable = isUsable(port, tensor);
  if (!usable)
    return usable.error();
  void *&address = frame.addresses[port.buffer];
  if (*usable && tensor.strides() == strides) {
    address = const_cast<void *>(tensor.data());
    for (const PortPlan &other : plan.inputs)
      if (other.buffer != port.buffer && !other.strides.empty() && frame.addresses[other.buffer] == address)
        return badInput(fmt::format("inputs {} and {} are the same cache", other.name, port.name));
    frame.owners[port.buffer] = tensor.storage();
    return {};
  }
  const size_t bytes = frame.bucket->plan.bufferBytes[port.buffer];
  Result<std::shared_ptr<void>> memory = pools[port.buffer].acquire(*backend, bytes);
  if (!memory)
    return Error{memory.error().kind, fmt::format("cache {}: {}", port.name, memory.error().message)};
  address = memory->get();
  frame.owners[port.buffer] = *memory;
  if (options.poison)
    if (Status status = backend->fill(address, 0xFF, bytes); !status)
      return status;
  Tensor target = Tensor::wrapStrided(port.type, tensor.shape(), strides, address, nullptr, backend->device());
  Status copied = backend->transfer(tensor, target);
  return copied ? copied : Error{copied.error().kind, fmt::format("input {}: {}", port.name, copied.error().message)};
}

Status Executor::Runner::placeInput(const PortPlan &port, const Tensor &tensor, Frame &frame) {
  Result<bool> usable = isUsable(port, tensor);
  if (!usable)
    return usable.error();
  if (*usable && tensor.isDense() && !writtenInputs[port.buffer]) {
    frame.addresses[port.buffer] = const_cast<void *>(tensor.data());
    frame.owners[port.buffer] = std::make_shared<Tensor>(tensor);
    return {};
  }
  Result<std::shared_ptr<void>> memory = pools[port.buffer].acquire(*backend, tensor.bytes());
  if (!memory)
    return Error{memory.error().kind, fmt::format("input {}: {}", port.name, memory.error().message)};
  frame.addresses[port.buffer] = memory->get();
  frame.owners[port.buffer] = *memory;
  Tensor target = Tensor::wrap(port.type, tensor.shape(), memory->get(), nullptr, backend->device());
  Status copied = backend->transfer(tensor, target);
  return copied ? copied : Error{copied.error().kind, fmt::format("input {}: {}", port.name, copied.error().message)};
}

Result<Executor::Runner::Frame> Executor::Runner::prepare(const NamedTensors &inputs) {
  Result<ShapeBucket *> bucket = bucketFor(inputs);
  if (!bucket)
    return bucket.error();
  const ShapePlan &shapes = (*bucket)->plan;
  if (Status status = growArena(shapes.arenaBytes); !status)
    return status.error();
  Frame frame{*bucket, std::vector<void *>(plan.buffers.size(), nullptr),
              std::vector<std::shared_ptr<void>>(plan.buffers.size())};
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    switch (plan.buffers[i].kind) {
    case BufferPlan::Kind::Input:
      break; // by port, below
    case BufferPlan::Kind::Weight:
      frame.addresses[i] = weights.address(static_cast<BufferId>(i));
      break;
    case BufferPlan::Kind::Temporary:
      frame.addresses[i] = static_cast<std::byte *>(arena.get()) + shapes.arenaOffsets[i];
      break;
    case BufferPlan::Kind::Output: {
      Result<std::shared_ptr<void>> memory = pools[i].acquire(*backend, shapes.bufferBytes[i]);
      if (!memory)
        return Error{memory.error().kind,
                     fmt::format("output {}: {}", plan.buffers[i].name, memory.error().message)};
      frame.addresses[i] = memory->get();
      frame.owners[i] = *memory;
    }
    }
  }
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PortPlan &port = plan.inputs[i];
    const Tensor &tensor = inputs.find(port.name)->second;
    Status status = port.strides.empty() ? placeInput(port, tensor, frame)
                                         : placeCache(port, shapes.inputStrides[i], tensor, frame);
    if (!status)
      return status.error();
  }
  return frame;
}

Status Executor::Runner::poison(const Frame &frame) {
  const ShapePlan &shapes = frame.bucket->plan;
  if (Status status = backend->fill(arena.get(), 0xFF, shapes.arenaBytes); !status)
    return status;
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    if (plan.buffers[i].kind == BufferPlan::Kind::Output)
      if (Status status = backend->fill(frame.addresses[i], 0xFF, shapes.bufferBytes[i]); !status)
        return status;
  return {};
}

Status Executor::Runner::launch(const Frame &frame, const ShapePlan::Launch &launch, bool mayOverlap) {
  using Kind = ShapePlan::Argument::Kind;
  argumentValues.clear();
  for (const ShapePlan::Argument &argument : launch.arguments)
    argumentValues.push_back(argument.kind == Kind::Exchange ? reinterpret_cast<uint64_t>(exchange)
                             : argument.kind == Kind::Number
                                 ? argument.value
                                 : reinterpret_cast<uint64_t>(frame.addresses[argument.buffer]) + argument.value);
  Status status =
      plan.kernels[launch.kernel].isLibraryCall
          ? callLibrary(launch)
          : backend->launch({launch.kernel, launch.grid, argumentValues, mayOverlap && launch.overlapsPrevious});
  const std::string &location = plan.launches[launch.source].location;
  if (!status && !location.empty())
    return Error{status.error().kind, fmt::format("{}: {}", location, status.error().message)};
  return status;
}

Status Executor::Runner::callLibrary(const ShapePlan::Launch &launch) {
  const auto elements = static_cast<size_t>(argumentValues[2]);
  if (elements == 0)
    return {};
  return options.communicator->allReduce(reinterpret_cast<const void *>(argumentValues[0]),
                                         reinterpret_cast<void *>(argumentValues[1]), elements,
                                         plan.buffers[launch.arguments[0].buffer].type, backend->stream());
}

Status Executor::Runner::launchAll(const Frame &frame) {
  for (const ShapePlan::Launch &one : frame.bucket->plan.launches)
    if (Status status = launch(frame, one, true); !status)
      return status;
  return {};
}

Status Executor::Runner::findRecording(Frame &frame) {
  ShapeBucket &bucket = *frame.bucket;
  if (!options.recordGraphs || bucket.plan.launches.empty())
    return {};
  Result<bool> capturing = backend->capturing();
  if (!capturing || *capturing)
    return capturing ? Status() : capturing.error();
  for (ShapeBucket::Recorded &recorded : bucket.recorded)
    if (recorded.addresses == frame.addresses) {
      frame.recording = recorded.recording.get();
      return {};
    }
  if (bucket.lastAddresses != frame.addresses) {
    bucket.lastAddresses = frame.addresses;
    return {};
  }
  auto recording = backend->record([&] { return launchAll(frame); });
  if (!recording)
    return recording.error();
  if (!*recording)
    return {};
  if (bucket.recorded.size() == maxRecordings) {
    if (Status status = backend->synchronize(); !status) // it may be running
      return status;
    bucket.recorded.pop_front();
  }
  bucket.recorded.push_back({frame.addresses, std::move(*recording)});
  frame.recording = bucket.recorded.back().recording.get();
  return {};
}

Status Executor::Runner::execute(const Frame &frame) {
  if (options.poison)
    if (Status status = poison(frame); !status)
      return status;
  if (frame.recording)
    return frame.recording->replay();
  Result<bool> capturing = backend->capturing();
  if (!capturing)
    return capturing.error();
  if (*capturing) {
    reserved.push_back(arena);
    reserved.insert(reserved.end(), frame.owners.begin(), frame.owners.end());
  }
  return launchAll(frame);
}

Result<NamedTensors> Executor::Runner::collect(const Frame &frame, bool onDevice) {
  NamedTensors outputs;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PortPlan &port = plan.outputs[i];
    const Shape &shape = frame.bucket->plan.outputShapes[i];
    void *address =
        static_cast<std::byte *>(frame.addresses[port.buffer]) + frame.bucket->plan.outputOffsets[i];
    const std::shared_ptr<void> &owner = frame.owners[port.buffer];
    if (!port.strides.empty()) {
      outputs[port.name] = Tensor::wrapStrided(port.type, shape, frame.bucket->plan.outputStrides[i], address, owner,
                                               backend->device());
      continue;
    }
    if (onDevice || backend->sharesHostMemory()) {
      outputs[port.name] =
          Tensor::wrap(port.type, shape, address, owner ? owner : weights.owner(), backend->device());
      continue;
    }
    Tensor tensor = Tensor::uninitialized(port.type, shape);
    if (Status status = backend->download(tensor.data(), address, tensor.bytes()); !status)
      return status.error();
    outputs[port.name] = std::move(tensor);
  }
  return outputs;
}

Status Executor::Runner::meetOthers(const Frame *frame) {
  if (!options.communicator)
    return {};
  Rendezvous &host = options.communicator->host();
  std::string sizes;
  if (frame)
    sizes.assign(reinterpret_cast<const char *>(frame->bucket->key.data()), frame->bucket->key.size() * sizeof(int64_t));
  auto told = host.gather(sizes);
  if (!told)
    return told.error();
  for (size_t rank = 1; rank < told->size(); ++rank)
    if ((*told)[rank] != told->front())
      return badInput(fmt::format("the inputs of rank {} have other shapes than those of rank 0", rank));
  return {};
}

Status Executor::Runner::checkOthers() { return options.communicator ? options.communicator->check() : Status(); }

Status Executor::Runner::runOnce(Frame &frame) {
  if (Status status = findRecording(frame); !status)
    return status;
  if (Status status = meetOthers(&frame); !status)
    return status;
  if (Status status = execute(frame); !status)
    return status;
  if (Status status = backend->synchronize(); !status)
    return status;
  return checkOthers();
}

Result<NamedTensors> Executor::Runner::run(const NamedTensors &inputs) {
  std::lock_guard lock(mutex);
  Turn turn(*backend, std::nullopt);
  if (!turn.entered)
    return turn.entered.error();
  Result<Frame> frame = prepare(inputs);
  if (!frame)
    return frame.error();
  if (Status status = runOnce(*frame); !status)
    return status.error();
  return collect(*frame, options.keepOutputsOnDevice);
}

Result<NamedTensors> Executor::Runner::enqueue(const NamedTensors &inputs, void *stream) {
  std::lock_guard lock(mutex);
  Turn turn(*backend, stream);
  if (!turn.entered)
    return turn.entered.error();
  Result<Frame> frame = prepare(inputs);
  if (!frame)
    return frame.error();
  if (Status status = findRecording(*frame); !status)
    return status.error();
  if (Status status = meetOthers(&*frame); !status)
    return status.error();
  if (Status status = execute(*frame); !status)
    return status.error();
  return collect(*frame, true);
}

Result<NamedTensors> Executor::Runner::fetch(const NamedTensors &tensors) {
  std::lock_guard lock(mutex);
  Turn turn(*backend, std::nullopt);
  if (!turn.entered)
    return turn.entered.error();
  NamedTensors copies;
  for (const auto &[name, tensor] : tensors) {
    Tensor copy = tensor.device().kind == Device::Kind::Host ? tensor.dense() : tensor;
    if (tensor.device().kind != Device::Kind::Host) {
      if (!(tensor.device() == backend->device()))
        return badInput(fmt::format("{} is on GPU {}, the program runs on {}", name, tensor.device().ordinal,
                                    backend->description()));
      copy = Tensor::uninitialized(tensor.type(), tensor.shape());
      if (Status status = backend->transfer(tensor, copy); !status)
        return status.error();
    }
    copies[name] = std::move(copy);
  }
  return copies;
}

} // namespace fusion
