#include "runtime/ShapePlan.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

namespace fusion {

static constexpr int64_t maxBytes = int64_t(1) << 46; // beyond any device; keeps sums from overflowing

/// One set of shapes. What errors say is only put together when there is one.
class ShapePlanner::Planning {
public:
  Planning(ShapePlanner &planner, const SymbolValues &symbols, const Communicator *communicator)
      : planner(planner), plan(planner.program), symbols(symbols), communicator(communicator) {}

  Result<ShapePlan> run() {
    for (const BufferPlan &buffer : plan.buffers)
      if (Status status = addBuffer(buffer); !status)
        return status.error();
    for (size_t i = 0; i < plan.launches.size();) {
      const size_t end = plan.endOfCollective(i);
      Status status = end == i ? addLaunch(static_cast<uint32_t>(i)) : addCollective(i, end);
      if (!status)
        return status.error();
      i = std::max(end, i + 1);
    }
    for (const PortPlan &port : plan.outputs)
      if (Status status = addOutput(port); !status)
        return status.error();
    for (const PortPlan &port : plan.inputs)
      if (Status status = addStrides(port, "input", result.inputStrides); !status)
        return status.error();
    placeTemporaries();
    return std::move(result);
  }

private:
  Result<int64_t> evaluate(const Dim &dim) {
    if (std::optional<int64_t> constant = dim.constant())
      return *constant;
    const auto place = planner.places.find(&dim);
    if (place == planner.places.end())
      return dim.evaluate(symbols);
    std::optional<int64_t> &known = planner.values[place->second];
    if (!known) {
      Result<int64_t> value = dim.evaluate(symbols);
      if (!value)
        return value;
      known = *value;
    }
    return *known;
  }

  /// `dim` in [0, limit]; `where()` is text.
  template <class Where> Result<int64_t> evaluate(const Dim &dim, int64_t limit, const Where &where) {
    Result<int64_t> value = evaluate(dim);
    if (!value)
      return badInput(fmt::format("{}: {}: {}", where(), dim.str(), value.error().message));
    if (*value < 0 || *value > limit)
      return badInput(fmt::format("{}: {} is {}, the limit is {}", where(), dim.str(), *value, limit));
    return *value;
  }

  template <class Where>
  Result<size_t> bytesOf(DType type, const DimShape &dims, const Where &where, Shape *shape = nullptr) {
    int64_t bytes = static_cast<int64_t>(byteSize(type));
    for (const Dim &dim : dims) {
      Result<int64_t> value = evaluate(dim, maxBytes, where);
      if (!value)
        return value.error();
      if (__builtin_mul_overflow(bytes, *value, &bytes) || bytes > maxBytes)
        return badInput(fmt::format("{}: shape {} is too large", where(), shapeString(dims)));
      if (shape)
        shape->push_back(*value);
    }
    return static_cast<size_t>(bytes);
  }

  Status addBuffer(const BufferPlan &buffer) {
    Result<size_t> bytes = bytesOf(buffer.type, buffer.shape, [&] { return "buffer " + buffer.name; });
    if (!bytes)
      return bytes.error();
    result.bufferBytes.push_back(*bytes);
    return {};
  }

  std::string placeOf(const KernelLaunch &launch) const {
    const std::string &kernel = plan.kernels[launch.kernel].name;
    return launch.location.empty() ? fmt::format("kernel {}", kernel)
                                   : fmt::format("kernel {} at {}", kernel, launch.location);
  }

  /// The launches of the form that the communicator takes.
  Status addCollective(size_t begin, size_t end) {
    const std::string where = placeOf(plan.launches[begin]);
    if (!communicator)
      return badInput(where + ": waits for other ranks, and there are none");
    std::vector<CollectiveWay> ways;
    int64_t messageBytes = 0;
    for (size_t i = begin; i < end; ++i) {
      const KernelLaunch::Collective &collective = *plan.launches[i].collective;
      Result<int64_t> message = evaluate(collective.messageBytes, maxBytes, [&] { return where + ": message"; }),
                      round = evaluate(collective.roundBytes, maxBytes, [&] { return where + ": exchanged bytes"; });
      if (!message || !round)
        return (message ? round : message).error();
      messageBytes = *message;
      if (ways.empty() || ways.back().form != collective.form)
        ways.push_back({collective.form, 0});
      ways.back().roundBytes = std::max(ways.back().roundBytes, static_cast<size_t>(*round));
    }
    const CollectiveForm form = communicator->choose(static_cast<size_t>(messageBytes), ways);
    for (size_t i = begin; i < end; ++i) {
      if (plan.launches[i].collective->form != form)
        continue;
      if (Status status = addLaunch(static_cast<uint32_t>(i)); !status)
        return status;
    }
    for (const CollectiveWay &way : ways)
      if (way.form == form)
        result.roundBytes = std::max(result.roundBytes, way.roundBytes);
    return {};
  }

  Status addLaunch(uint32_t index) {
    const KernelLaunch &source = plan.launches[index];
    const KernelPlan &kernel = plan.kernels[source.kernel];
    auto where = [&] { return placeOf(source); };
    if (source.when) {
      Result<int64_t> size = evaluate(source.when->size, INT64_MAX, where);
      if (!size)
        return size.error();
      skipped = skipped || *size < 1; // else another kernel takes this one's place
      if (!source.when->holds(*size))
        return {};
    }
    ShapePlan::Launch launch{index, source.kernel};
    const Dim *grid[] = {&source.gridX, &source.gridY, &source.gridZ};
    for (int axis = 0; axis < 3; ++axis) {
      Result<int64_t> extent = evaluate(*grid[axis], axis == 0 ? INT32_MAX : 65535,
                                        [&] { return fmt::format("{}: grid {}", where(), "xyz"[axis]); });
      if (!extent)
        return extent.error();
      launch.grid[axis] = static_cast<uint32_t>(*extent);
    }
    if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) {
      skipped = true;
      return {};
    }
    for (const KernelLaunch::Argument &argument : source.arguments) {
      if (argument.exchange) {
        launch.arguments.push_back({ShapePlan::Argument::Kind::Exchange, 0, 0});
        continue;
      }
      if (!argument.buffer) {
        Result<int64_t> value = evaluate(argument.value);
        if (!value)
          return badInput(fmt::format("{}: {}", where(), value.error().message));
        launch.arguments.push_back({ShapePlan::Argument::Kind::Number, 0, static_cast<uint64_t>(*value)});
        continue;
      }
      auto limit = static_cast<int64_t>(result.bufferBytes[*argument.buffer]);
      Result<int64_t> offset = evaluate(argument.byteOffset, limit, [&] {
        return fmt::format("{}: byte offset into {}", where(), plan.buffers[*argument.buffer].name);
      });
      if (!offset)
        return offset.error();
      launch.arguments.push_back({ShapePlan::Argument::Kind::Buffer, *argument.buffer, static_cast<uint64_t>(*offset)});
    }
    // A kernel may read early what the launch before it in the plan does not write; without that launch, it follows
    // one that may.
    launch.overlapsPrevious =
        kernel.usesPdl && !std::exchange(skipped, false) && !result.launches.empty() &&
        plan.kernels[result.launches.back().kernel].usesPdl;
    double moved = 0, flops = 0; // reports only: an expression that does not evaluate counts as nothing
    for (const Dim *dim : {&source.bytesRead, &source.bytesWritten})
      if (Result<int64_t> value = evaluate(*dim))
        moved += static_cast<double>(*value);
    if (Result<int64_t> value = evaluate(source.flops))
      flops = static_cast<double>(*value);
    result.bytesMoved.push_back(moved);
    result.flops.push_back(flops);
    result.launches.push_back(std::move(launch));
    return {};
  }

  Status addOutput(const PortPlan &port) {
    auto where = [&] { return "output " + port.name; };
    Shape shape;
    Result<size_t> bytes = bytesOf(port.type, port.shape, where, &shape);
    if (!bytes)
      return bytes.error();
    Result<int64_t> offset = evaluate(port.byteOffset, maxBytes, where);
    if (!offset)
      return offset.error();
    if (Status status = addStrides(port, "output", result.outputStrides); !status)
      return status;
    if (static_cast<size_t>(*offset) + *bytes > result.bufferBytes[port.buffer])
      return badInput(fmt::format("{}: {} bytes at {} lie outside buffer {} of {} bytes", where(), *bytes,
                                  *offset, plan.buffers[port.buffer].name, result.bufferBytes[port.buffer]));
    result.outputShapes.push_back(std::move(shape));
    result.outputOffsets.push_back(static_cast<size_t>(*offset));
    return {};
  }

  /// A cache must hold what the run needs.
  Status addStrides(const PortPlan &port, std::string_view kind, std::vector<Shape> &list) {
    Shape &strides = list.emplace_back();
    auto where = [&] { return fmt::format("{} {}", kind, port.name); };
    for (size_t dim = 0; dim < port.strides.size(); ++dim) {
      Result<int64_t> size = evaluate(port.shape[dim], maxBytes, where),
                      room = evaluate(plan.buffers[port.buffer].shape[dim], maxBytes, where),
                      stride = evaluate(port.strides[dim], maxBytes, where);
      if (!size || !room || !stride)
        return (!size ? size : !room ? room : stride).error();
      if (*size > *room)
        return badInput(fmt::format("{}: dim {} needs {} positions, the cache was compiled for a capacity of {}", where(),
                                    dim, *size, *room));
      strides.push_back(*stride);
    }
    return {};
  }

  void placeTemporaries() {
    std::vector<Lifetime> lifetimes(plan.buffers.size(), {0, INT64_MAX, -1});
    for (size_t i = 0; i < result.launches.size(); ++i)
      for (const ShapePlan::Argument &argument : result.launches[i].arguments)
        if (argument.kind == ShapePlan::Argument::Kind::Buffer && plan.buffers[argument.buffer].kind == BufferPlan::Kind::Temporary) {
          Lifetime &lifetime = lifetimes[argument.buffer];
          lifetime.bytes = result.bufferBytes[argument.buffer];
          lifetime.first = std::min(lifetime.first, static_cast<int64_t>(i));
          lifetime.last = static_cast<int64_t>(i);
        }
    std::vector<BufferId> places = shareMemory(lifetimes);
    for (Lifetime &lifetime : lifetimes) // sizes that take as much memory are the same
      lifetime.bytes = alignedSize(lifetime.bytes);
    if (lifetimes != planner.lastLifetimes) {
      planner.lastMemory = planMemory(lifetimes);
      planner.lastLifetimes = std::move(lifetimes);
    }
    for (BufferId place : places)
      result.arenaOffsets.push_back(planner.lastMemory.offsets[place]);
    result.arenaBytes = planner.lastMemory.total;
  }

  /// Whose memory each buffer uses: its own, or that of a temporary which the launch that writes it reads last and
  /// may write over. The lifetimes become those of the memory.
  std::vector<BufferId> shareMemory(std::vector<Lifetime> &lifetimes) const {
    std::vector<BufferId> places(lifetimes.size());
    std::iota(places.begin(), places.end(), 0);
    for (size_t i = 0; i < result.launches.size(); ++i) {
      const auto &arguments = plan.launches[result.launches[i].source].arguments;
      auto now = static_cast<int64_t>(i);
      for (const KernelLaunch::Argument &output : arguments)
        for (uint32_t other : output.mayReplace) {
          const KernelLaunch::Argument &input = arguments[other];
          Lifetime &written = lifetimes[*output.buffer], &read = lifetimes[places[*input.buffer]];
          bool dies = written.bytes > 0 && written.first == now && read.bytes > 0 && read.last == now;
          // A buffer that begins elsewhere than its memory's owner would not line up.
          bool lineUp = output.byteOffset == Dim(0) && input.byteOffset == Dim(0) && read.bytes >= written.bytes;
          if (!dies || !lineUp || *output.buffer == places[*input.buffer])
            continue;
          read.last = written.last;
          written = {0, INT64_MAX, -1};
          places[*output.buffer] = places[*input.buffer];
          break;
        }
    }
    return places;
  }

  ShapePlanner &planner;
  const ProgramPlan &plan;
  const SymbolValues &symbols;
  const Communicator *communicator;
  ShapePlan result;
  bool skipped = false; ///< the launch before had nothing to do
};

ShapePlanner::ShapePlanner(const ProgramPlan &plan) : program(plan) {
  std::map<Dim, uint32_t> known;
  auto indexAll = [&](const DimShape &dims) {
    for (const Dim &dim : dims)
      index(dim, known);
  };
  for (const BufferPlan &buffer : plan.buffers)
    indexAll(buffer.shape);
  for (const KernelLaunch &launch : plan.launches) {
    for (const Dim *dim : {&launch.gridX, &launch.gridY, &launch.gridZ, &launch.bytesRead, &launch.bytesWritten, &launch.flops})
      index(*dim, known);
    if (launch.when)
      index(launch.when->size, known);
    if (launch.collective) {
      index(launch.collective->messageBytes, known);
      index(launch.collective->roundBytes, known);
    }
    for (const KernelLaunch::Argument &argument : launch.arguments) {
      index(argument.byteOffset, known);
      index(argument.value, known);
    }
  }
  for (const std::vector<PortPlan> *ports : {&plan.inputs, &plan.outputs})
    for (const PortPlan &port : *ports) {
      indexAll(port.shape);
      indexAll(port.strides);
      index(port.byteOffset, known);
    }
  values.resize(known.size());
}

void ShapePlanner::index(const Dim &dim, std::map<Dim, uint32_t> &known) {
  if (!dim.isStatic())
    places[&dim] = known.try_emplace(dim, static_cast<uint32_t>(known.size())).first->second;
}

Result<ShapePlan> ShapePlanner::plan(const SymbolValues &symbols, const Communicator *communicator) {
  values.assign(values.size(), std::nullopt);
  return Planning(*this, symbols, communicator).run();
}

Result<ShapePlan> planShapes(const ProgramPlan &plan, const SymbolValues &symbols, const Communicator *communicator) {
  return ShapePlanner(plan).plan(symbols, communicator);
}

} // namespace fusion
