#include "runtime/ShapePlan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace fusion {

static constexpr int64_t maxBytes = int64_t(1) << 46; // beyond any device; keeps sums from overflowing

/// One set of shapes. What errors say is only put together when there is one.
class ShapePlanner::Planning {
public:
  Planning(ShapePlanner &planner, const SymbolValues &symbols, const Communicator *communicator,
           const LibraryChoice &byLibrary)
      : planner(planner), plan(planner.program), index(planner.index), symbols(symbols), communicator(communicator),
        byLibrary(byLibrary) {}

  Result<ShapePlan> run() {
    result.symbols = planner.symbolValues;
    for (size_t i = 0; i < plan.buffers.size(); ++i)
      if (Status status = addBuffer(i); !status)
        return status.error();
    result.fates.assign(plan.launches.size(), ShapePlan::Fate::OtherForm);
    result.positions.assign(plan.launches.size(), 0);
    for (size_t i = 0; i < plan.launches.size();) {
      const size_t end = plan.endOfCollective(i), products = plan.endOfProducts(i);
      Status status = products > i ? addProducts(i, products)
                      : end > i    ? addCollective(i, end)
                                   : addLaunch(static_cast<uint32_t>(i));
      if (!status)
        return status.error();
      i = std::max({end, products, i + 1});
    }
    for (size_t i = 0; i < plan.outputs.size(); ++i)
      if (Status status = addOutput(plan.outputs[i], index.outputs[i]); !status)
        return status.error();
    for (size_t i = 0; i < plan.inputs.size(); ++i)
      if (Status status = addStrides(plan.inputs[i], index.inputs[i], "input", result.inputStrides); !status)
        return status.error();
    result.askedBytes.assign(plan.buffers.size(), 0);
    for (const ShapePlan::Launch &launch : result.launches)
      for (const ShapePlan::Argument &argument : launch.arguments)
        if (argument.kind == ShapePlan::Argument::Kind::Buffer && plan.buffers[argument.buffer].kind == BufferPlan::Kind::Temporary)
          result.askedBytes[argument.buffer] = result.bufferBytes[argument.buffer];
    planner.placeTemporaries(result);
    return std::move(result);
  }

private:
  Result<int64_t> evaluate(const Size &size) {
    if (std::optional<int64_t> value = planner.value(size))
      return *value;
    return size.dim->evaluate(symbols);
  }

  /// `size` in [0, limit]; `where()` is text.
  template <class Where> Result<int64_t> evaluate(const Size &size, int64_t limit, const Where &where) {
    Result<int64_t> value = evaluate(size);
    if (!value)
      return badInput(fmt::format("{}: {}: {}", where(), size.dim->str(), value.error().message));
    if (*value < 0 || *value > limit)
      return badInput(fmt::format("{}: {} is {}, the limit is {}", where(), size.dim->str(), *value, limit));
    return *value;
  }

  template <class Where>
  Result<size_t> bytesOf(DType type, const DimShape &dims, const std::vector<Size> &sizes, const Where &where,
                         Shape *shape = nullptr) {
    int64_t bytes = static_cast<int64_t>(byteSize(type));
    for (const Size &size : sizes) {
      Result<int64_t> value = evaluate(size, maxBytes, where);
      if (!value)
        return value.error();
      if (__builtin_mul_overflow(bytes, *value, &bytes) || bytes > maxBytes)
        return badInput(fmt::format("{}: shape {} is too large", where(), shapeString(dims)));
      if (shape)
        shape->push_back(*value);
    }
    return static_cast<size_t>(bytes);
  }

  Status addBuffer(size_t number) {
    const BufferPlan &buffer = plan.buffers[number];
    Result<size_t> bytes = bytesOf(buffer.type, buffer.shape, index.buffers[number], [&] { return "buffer " + buffer.name; });
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
      const ShapeIndex::Launch &sizes = index.launches[i];
      Result<int64_t> message = evaluate(*sizes.messageBytes, maxBytes, [&] { return where + ": message"; }),
                      round = evaluate(*sizes.roundBytes, maxBytes, [&] { return where + ": exchanged bytes"; });
      if (!message || !round)
        return (message ? round : message).error();
      messageBytes = *message;
      if (ways.empty() || ways.back().form != collective.form)
        ways.push_back({collective.form, 0, collective.finishedRows});
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

  Status addProducts(size_t begin, size_t end) {
    const ProductWay way = byLibrary && byLibrary(begin) ? ProductWay::Library : ProductWay::Kernel;
    for (size_t i = begin; i < end; ++i)
      if (plan.launches[i].way == way)
        if (Status status = addLaunch(static_cast<uint32_t>(i)); !status)
          return status;
    return {};
  }

  Status addLaunch(uint32_t number) {
    using Fate = ShapePlan::Fate;
    const KernelLaunch &source = plan.launches[number];
    const ShapeIndex::Launch &sizes = index.launches[number];
    const KernelPlan &kernel = plan.kernels[source.kernel];
    Fate &fate = result.fates[number];
    auto where = [&] { return placeOf(source); };
    if (source.when) {
      Result<int64_t> size = evaluate(*sizes.when, INT64_MAX, where);
      if (!size)
        return size.error();
      skipped = skipped || *size < 1; // else another kernel takes this one's place
      fate = *size < 1 ? Fate::Nothing : Fate::OtherSizes;
      if (!source.when->holds(*size))
        return {};
    }
    ShapePlan::Launch launch{number, source.kernel};
    for (int axis = 0; axis < 3; ++axis) {
      Result<int64_t> extent = evaluate(sizes.grid[axis], axis == 0 ? INT32_MAX : 65535,
                                        [&] { return fmt::format("{}: grid {}", where(), "xyz"[axis]); });
      if (!extent)
        return extent.error();
      launch.grid[axis] = static_cast<uint32_t>(*extent);
    }
    if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) {
      skipped = true;
      fate = Fate::Empty;
      return {};
    }
    for (size_t i = 0; i < source.arguments.size(); ++i) {
      const KernelLaunch::Argument &argument = source.arguments[i];
      if (argument.exchange) {
        launch.arguments.push_back({ShapePlan::Argument::Kind::Exchange, 0, 0});
        continue;
      }
      if (!argument.buffer) {
        Result<int64_t> value = evaluate(sizes.arguments[i]);
        if (!value)
          return badInput(fmt::format("{}: {}", where(), value.error().message));
        launch.arguments.push_back({ShapePlan::Argument::Kind::Number, 0, static_cast<uint64_t>(*value)});
        continue;
      }
      auto limit = static_cast<int64_t>(result.bufferBytes[*argument.buffer]);
      Result<int64_t> offset = evaluate(sizes.arguments[i], limit, [&] {
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
    fate = Fate::Launched;
    result.positions[number] = static_cast<uint32_t>(result.launches.size());
    result.launches.push_back(std::move(launch));
    return {};
  }

  Status addOutput(const PortPlan &port, const ShapeIndex::Port &sizes) {
    auto where = [&] { return "output " + port.name; };
    Shape shape;
    Result<size_t> bytes = bytesOf(port.type, port.shape, sizes.shape, where, &shape);
    if (!bytes)
      return bytes.error();
    Result<int64_t> offset = evaluate(sizes.byteOffset, maxBytes, where);
    if (!offset)
      return offset.error();
    if (Status status = addStrides(port, sizes, "output", result.outputStrides); !status)
      return status;
    if (static_cast<size_t>(*offset) + *bytes > result.bufferBytes[port.buffer])
      return badInput(fmt::format("{}: {} bytes at {} lie outside buffer {} of {} bytes", where(), *bytes,
                                  *offset, plan.buffers[port.buffer].name, result.bufferBytes[port.buffer]));
    result.outputShapes.push_back(std::move(shape));
    result.outputOffsets.push_back(static_cast<size_t>(*offset));
    return {};
  }

  /// A cache must hold what the run needs.
  Status addStrides(const PortPlan &port, const ShapeIndex::Port &sizes, std::string_view kind, std::vector<Shape> &list) {
    Shape &strides = list.emplace_back();
    auto where = [&] { return fmt::format("{} {}", kind, port.name); };
    for (size_t dim = 0; dim < port.strides.size(); ++dim) {
      Result<int64_t> size = evaluate(sizes.shape[dim], maxBytes, where), room = evaluate(sizes.room[dim], maxBytes, where),
                      stride = evaluate(sizes.strides[dim], maxBytes, where);
      if (!size || !room || !stride)
        return (!size ? size : !room ? room : stride).error();
      if (*size > *room)
        return badInput(fmt::format("{}: dim {} needs {} positions, the cache was compiled for a capacity of {}", where(),
                                    dim, *size, *room));
      strides.push_back(*stride);
    }
    return {};
  }

  ShapePlanner &planner;
  const ProgramPlan &plan;
  const ShapeIndex &index;
  const SymbolValues &symbols;
  const Communicator *communicator;
  const LibraryChoice &byLibrary;
  ShapePlan result;
  bool skipped = false; ///< the launch before had nothing to do
};

ShapePlanner::ShapePlanner(const ProgramPlan &plan)
    : program(plan), index(plan), values(index.table.size()), knownSince(index.table.size(), 0) {}

SymbolValues ShapePlanner::named(std::span<const int64_t> symbols) const {
  SymbolValues result;
  for (size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i] != DimTable::unknown)
      result[index.table.symbols()[i]] = symbols[i];
  return result;
}

void ShapePlanner::begin(std::span<const int64_t> symbols) {
  symbolValues.assign(symbols.begin(), symbols.end());
  ++turn;
}

std::optional<int64_t> ShapePlanner::value(const Size &size) {
  if (size.number == Size::isConstant)
    return size.constant;
  if (knownSince[size.number] == turn)
    return values[size.number];
  std::optional<int64_t> value = index.table.evaluate(size.number, symbolValues);
  ++evaluated;
  if (value) {
    values[size.number] = *value;
    knownSince[size.number] = turn;
  }
  return value;
}

Result<ShapePlan> ShapePlanner::plan(const SymbolValues &symbols, const Communicator *communicator,
                                     const LibraryChoice &byLibrary) {
  std::vector<int64_t> numbered;
  for (const std::string &name : index.table.symbols()) {
    auto found = symbols.find(name);
    numbered.push_back(found == symbols.end() ? DimTable::unknown : found->second);
  }
  begin(numbered);
  return Planning(*this, symbols, communicator, byLibrary).run();
}

Result<ShapePlan> ShapePlanner::plan(std::span<const int64_t> symbols, const Communicator *communicator,
                                     const LibraryChoice &byLibrary) {
  begin(symbols);
  return Planning(*this, named(symbols), communicator, byLibrary).run();
}

ShapePlanner::Traffic ShapePlanner::traffic(const ShapePlan &shapes, size_t launch) {
  begin(shapes.symbols);
  const ShapeIndex::Launch &sizes = index.launches[shapes.launches[launch].source];
  auto count = [&](const Size &size) { return static_cast<double>(value(size).value_or(0)); };
  return {count(sizes.bytesRead) + count(sizes.bytesWritten), count(sizes.flops)};
}

Result<ShapePlan> planShapes(const ProgramPlan &plan, const SymbolValues &symbols, const Communicator *communicator,
                             const LibraryChoice &byLibrary) {
  return ShapePlanner(plan).plan(symbols, communicator, byLibrary);
}

} // namespace fusion
