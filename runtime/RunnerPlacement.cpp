// Where the buffers of a run are.
#include "runtime/Runner.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

static constexpr uintptr_t kernelAlignment = 16;

Status Executor::Runner::growArena(size_t bytes) {
  if (bytes <= arenaCapacity)
    return {};
  // Shapes that grow step by step, as in a decode loop, shall not move it at every step.
  const size_t roomy = std::max(bytes, arenaCapacity + arenaCapacity / 4);
  arena = nullptr; // first, so that the old and the new one need not fit together
  arenaCapacity = 0;
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

Status Executor::Runner::growKeptZero(size_t bytes) {
  if (bytes <= keptZeroCapacity)
    return {};
  Result<std::shared_ptr<void>> memory = backend->allocate(bytes);
  if (!memory)
    return Error{memory.error().kind, "workspace: " + memory.error().message};
  if (Status status = backend->fill(memory->get(), 0, bytes); !status)
    return status;
  keptZero = *memory;
  keptZeroCapacity = bytes;
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

Status Executor::Runner::placeCache(const PortPlan &port, const Shape &strides, const Tensor &tensor,
                                    Frame &frame) {
  Result<bool> usable = isUsable(port, tensor);
  if (!usable)
    return usable.error();
  void *&address = frame.addresses[port.buffer];
  // A dense tensor may be anybody's; one with room is a result of this program.
  const bool isOurs = !tensor.isDense() || pools[port.buffer].owns(tensor.storage());
  const bool isDonated = options.donateCaches && tensor.isDense() &&
                         tensor.bytes() == frame.bucket->plan.placeBytes[port.buffer];
  if (*usable && (isDonated || (isOurs && tensor.strides() == strides))) {
    address = const_cast<void *>(tensor.data());
    frame.owners[port.buffer] = &tensor.storage();
    return {};
  }
  const size_t bytes = frame.bucket->plan.placeBytes[port.buffer];
  Result<const std::shared_ptr<void> *> memory = pools[port.buffer].acquire(*backend, bytes);
  if (!memory)
    return Error{memory.error().kind, fmt::format("cache {}: {}", port.name, memory.error().message)};
  address = (*memory)->get();
  frame.owners[port.buffer] = *memory;
  if (options.poison)
    if (Status status = backend->fill(address, 0xFF, bytes); !status)
      return status;
  Tensor target =
      Tensor::wrapStrided(port.type, tensor.shape(), strides, address, nullptr, backend->device());
  Status copied = backend->transfer(tensor, target);
  return copied ? copied
                : Error{copied.error().kind, fmt::format("input {}: {}", port.name, copied.error().message)};
}

Status Executor::Runner::placeInput(const PortPlan &port, const Tensor &tensor, Frame &frame) {
  Result<bool> usable = isUsable(port, tensor);
  if (!usable)
    return usable.error();
  if (*usable && tensor.isDense() && !writtenInputs[port.buffer]) {
    frame.addresses[port.buffer] = const_cast<void *>(tensor.data());
    frame.owners[port.buffer] = &tensor.storage();
    return {};
  }
  Result<const std::shared_ptr<void> *> memory = pools[port.buffer].acquire(*backend, tensor.bytes());
  if (!memory)
    return Error{memory.error().kind, fmt::format("input {}: {}", port.name, memory.error().message)};
  frame.addresses[port.buffer] = (*memory)->get();
  frame.owners[port.buffer] = *memory;
  Tensor target = Tensor::wrap(port.type, tensor.shape(), (*memory)->get(), nullptr, backend->device());
  Status copied = backend->transfer(tensor, target);
  return copied ? copied
                : Error{copied.error().kind, fmt::format("input {}: {}", port.name, copied.error().message)};
}

Status Executor::Runner::checkCaches(const Frame &frame) const {
  std::vector<std::pair<void *, const PortPlan *>> caches;
  for (const PortPlan &port : plan.inputs)
    if (!port.strides.empty())
      caches.push_back({frame.addresses[port.buffer], &port});
  std::sort(caches.begin(), caches.end());
  for (size_t i = 1; i < caches.size(); ++i)
    if (caches[i].first == caches[i - 1].first && caches[i].second->buffer != caches[i - 1].second->buffer)
      return badInput(fmt::format("inputs {} and {} are the same cache", caches[i - 1].second->name,
                                  caches[i].second->name));
  return {};
}

void Executor::Runner::placeTemporaries(const ShapePlan &shapes, std::vector<void *> &addresses) const {
  const std::vector<ShapeIndex::Place> &places = shapePlanner.sizes().places;
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i].isInArena)
      addresses[i] = static_cast<std::byte *>(arena.get()) + shapes.arenaOffsets[i];
    else if (places[i].isKeptZero)
      addresses[i] = keptZero.get();
}

Result<Executor::Runner::Frame> Executor::Runner::prepare(const NamedTensors &inputs) {
  if (Status status = binder.bind(inputs, tensors, symbols); !status)
    return status.error();
  symbols[shapePlanner.sizes().rank] = options.rank;
  Result<ShapeBucket *> bucket = bucketFor();
  if (!bucket)
    return bucket.error();
  const ShapePlan &shapes = (*bucket)->plan;
  if (Status status = growArena(shapes.arenaBytes); !status)
    return status.error();
  if (Status status = growKeptZero(shapes.keptZeroBytes); !status)
    return status.error();
  Frame frame{*bucket, std::move(spareFrame.addresses), std::move(spareFrame.owners)};
  frame.addresses.assign(shapes.placeBytes.size(), nullptr);
  frame.owners.assign(plan.buffers.size(), nullptr);
  placeTemporaries(shapes, frame.addresses);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].kind == BufferPlan::Kind::Weight ||
        plan.buffers[i].kind == BufferPlan::Kind::Prepared)
      frame.addresses[i] = weights.address(static_cast<BufferId>(i));
    if (plan.buffers[i].kind != BufferPlan::Kind::Output)
      continue;
    Result<const std::shared_ptr<void> *> memory = pools[i].acquire(*backend, shapes.placeBytes[i]);
    if (!memory)
      return Error{memory.error().kind,
                   fmt::format("output {}: {}", plan.buffers[i].name, memory.error().message)};
    frame.addresses[i] = (*memory)->get();
    frame.owners[i] = *memory;
  }
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PortPlan &port = plan.inputs[i];
    Status status = port.strides.empty() ? placeInput(port, *tensors[i], frame)
                                         : placeCache(port, shapes.inputStrides[i], *tensors[i], frame);
    if (!status)
      return status.error();
  }
  if (Status status = checkCaches(frame); !status)
    return status.error();
  return frame;
}

Status Executor::Runner::poison(const Frame &frame) {
  const ShapePlan &shapes = frame.bucket->plan;
  if (Status status = backend->fill(arena.get(), 0xFF, shapes.arenaBytes); !status)
    return status;
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    if (plan.buffers[i].kind == BufferPlan::Kind::Output)
      if (Status status = backend->fill(frame.addresses[i], 0xFF, shapes.placeBytes[i]); !status)
        return status;
  return {};
}

} // namespace fusion
