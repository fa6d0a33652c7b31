// Evaluates all sizes of a program for one set of shapes, and chooses an alternative of each step.
#include "runtime/Arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fusion {

static constexpr int64_t maxBytes = int64_t(1) << 46; // beyond any device; keeps sums from overflowing

/// One set of shapes. Messages are put together only where there is an error.
class ShapePlanner::Planning {
public:
  Planning(ShapePlanner &planner, const SymbolValues &symbols, const Communicator *communicator,
           const MeasuredChoice &measured)
      : planner(planner), plan(planner.program), index(planner.index), symbols(symbols),
        communicator(communicator), measured(measured) {}

  Result<ShapePlan> run() {
    result.symbols = planner.symbolValues;
    for (const ShapeIndex::Place &place : index.places)
      if (Status status = addPlace(place); !status)
        return status.error();
    result.states.assign(index.launches.size(), ShapePlan::State::NotChosen);
    result.positions.assign(index.launches.size(), 0);
    std::vector<size_t> open; // repetitions that the step at hand is in, by number
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      for (size_t next = result.repetitions.size();
           next < plan.repetitions.size() && plan.repetitions[next].first == i; ++next) {
        if (Status status = beginRounds(next); !status)
          return status.error();
        open.push_back(next);
      }
      if (Status status = addStep(i); !status)
        return status.error();
      for (; !open.empty() && plan.repetitions[open.back()].end == i + 1; open.pop_back()) {
        result.repetitions[open.back()].end = static_cast<uint32_t>(result.launches.size());
        skipped = true; // there may have been no round
        inRounds = open.size() > 1;
      }
    }
    for (size_t i = 0; i < plan.outputs.size(); ++i)
      if (Status status = addOutput(plan.outputs[i], index.outputs[i]); !status)
        return status.error();
    for (size_t i = 0; i < plan.inputs.size(); ++i)
      if (Status status = addStrides(plan.inputs[i], index.inputs[i], "input", result.inputStrides); !status)
        return status.error();
    result.askedBytes.assign(index.places.size(), 0);
    for (const ShapePlan::Launch &launch : result.launches)
      for (const ShapePlan::Argument &argument : launch.arguments)
        if (argument.usesPlace() && index.places[argument.place].isInArena)
          result.askedBytes[argument.place] = result.placeBytes[argument.place];
        else if (argument.usesPlace() && index.places[argument.place].isKeptZero)
          result.keptZeroBytes = std::max(result.keptZeroBytes, result.placeBytes[argument.place]);
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
  template <class Where>
  Result<int64_t> evaluate(const Size &size, int64_t limit, const Where &where) {
    Result<int64_t> value = evaluate(size);
    if (!value)
      return badInput(fmt::format("{}: {}: {}", where(), size.dim->str(), value.error().message));
    if (*value < 0 || *value > limit)
      return badInput(fmt::format("{}: {} is {}, the limit is {}", where(), size.dim->str(), *value, limit));
    return *value;
  }

  template <class Where>
  Result<size_t> bytesOf(DType type, const std::vector<Size> &sizes, const Where &where,
                         Shape *shape = nullptr) {
    int64_t bytes = static_cast<int64_t>(byteSize(type));
    for (const Size &size : sizes) {
      Result<int64_t> value = evaluate(size, maxBytes, where);
      if (!value)
        return value.error();
      if (__builtin_mul_overflow(bytes, *value, &bytes) || bytes > maxBytes)
        return badInput(fmt::format("{}: shape {} is too large", where(), shapeText(sizes)));
      if (shape)
        shape->push_back(*value);
    }
    return static_cast<size_t>(bytes);
  }

  static std::string shapeText(const std::vector<Size> &sizes) {
    DimShape shape;
    for (const Size &size : sizes)
      shape.push_back(*size.dim);
    return shapeString(shape);
  }

  Status addPlace(const ShapeIndex::Place &place) {
    Result<size_t> bytes = bytesOf(place.type, place.shape, [&] { return place.what; });
    if (!bytes)
      return bytes.error();
    result.placeBytes.push_back(*bytes);
    return {};
  }

  std::string placeOf(const KernelLaunch &launch) const {
    const std::string &kernel = plan.kernels[launch.kernel].name;
    return launch.location.empty() ? fmt::format("kernel {}", kernel)
                                   : fmt::format("kernel {} at {}", kernel, launch.location);
  }

  Status beginRounds(size_t number) {
    Result<int64_t> count = evaluate(index.repetitions[number]);
    if (!count)
      return badInput(fmt::format("the rounds of a loop: {}", count.error().message));
    const auto first = static_cast<uint32_t>(result.launches.size());
    result.repetitions.push_back({first, first, std::max<int64_t>(*count, 0)});
    inRounds = true;
    return {};
  }

  Status addStep(size_t number) {
    const Step &step = plan.steps[number];
    Result<std::vector<uint32_t>> fitting = candidatesOf(number);
    if (!fitting)
      return fitting.error();
    if (fitting->empty()) { // a size is below 1
      result.chosen.push_back(ShapePlan::none);
      skipped = true;
      return {};
    }
    Result<uint32_t> chosen = chosenOf(number, *fitting);
    if (!chosen)
      return chosen.error();
    result.chosen.push_back(*chosen);
    const Alternative &alternative = step.alternatives[*chosen];
    uint32_t launch = index.steps[number].alternatives[*chosen].firstLaunch;
    if (alternative.link == Alternative::Link::First) {
      Result<bool> links = isLinkedFrom(number);
      if (!links)
        return links.error();
      isLinked = *links;
    }
    if (isLinked) {
      if (alternative.link == Alternative::Link::Between)
        return {};
      isLinked = alternative.link == Alternative::Link::First;
      launch += static_cast<uint32_t>(alternative.launches.size());
      if (Status status = addLaunch(launch, alternative); !status)
        return status;
      if (result.states[launch] == ShapePlan::State::Launched)
        result.launches.back().runsBesidePrevious = step.choice == Step::Choice::Ranks;
      return {};
    }
    for (size_t i = 0; i < alternative.launches.size(); ++i)
      if (Status status = addLaunch(launch++, alternative); !status)
        return status;
    return {};
  }

  /// Whether the steps behind the first of a link take alternatives up to the last of it.
  Result<bool> isLinkedFrom(size_t number) {
    using Link = Alternative::Link;
    for (size_t next = number + 1; !inRounds && next < plan.steps.size(); ++next) {
      Result<std::vector<uint32_t>> fitting = candidatesOf(next);
      if (!fitting || fitting->empty())
        return fitting ? Result<bool>(false) : Result<bool>(fitting.error());
      Result<uint32_t> chosen = chosenOf(next, *fitting);
      if (!chosen)
        return chosen.error();
      const Link link = plan.steps[next].alternatives[*chosen].link;
      if (link != Link::Between)
        return link == Link::Last;
    }
    return false;
  }

  /// Which of its candidates a step takes.
  Result<uint32_t> chosenOf(size_t number, const std::vector<uint32_t> &fitting) {
    const Step::Choice choice = plan.steps[number].choice;
    if (choice == Step::Choice::Ranks)
      return chooseAlgorithm(number, fitting);
    return choice == Step::Choice::Measurement && measured ? measured(number, fitting) : fitting.front();
  }

  Result<std::vector<uint32_t>> candidatesOf(size_t number) {
    const Step &step = plan.steps[number];
    std::optional<Error> failure;
    auto fitting = candidates(step, [&](uint32_t i) {
      const Alternative &alternative = step.alternatives[i];
      for (size_t j = 0; j < alternative.when.size() && !failure; ++j) {
        Result<int64_t> size = evaluate(index.steps[number].alternatives[i].when[j], INT64_MAX,
                                        [&] { return placeOf(alternative.launches.front()); });
        if (!size)
          failure = size.error();
        else if (!alternative.when[j].holds(*size))
          return false;
      }
      return !failure;
    });
    if (failure)
      return *failure;
    return fitting;
  }

  /// The candidate of the algorithm that the communicator takes.
  Result<uint32_t> chooseAlgorithm(size_t number, const std::vector<uint32_t> &fitting) {
    const Step &step = plan.steps[number];
    const std::string where = placeOf(step.alternatives.front().launches.front());
    if (!communicator)
      return badInput(where + ": waits for other ranks, and there are none");
    std::vector<CollectiveCandidate> candidates;
    int64_t messageBytes = 0;
    for (uint32_t i : fitting) {
      const Collective &collective = *step.alternatives[i].collective;
      candidates.push_back({collective.algorithm, 0, collective.gathersRows});
    }
    // An algorithm's rounds are as large as any of its alternatives needs them.
    for (size_t i = 0; i < step.alternatives.size(); ++i) {
      const ShapeIndex::Alternative &sizes = index.steps[number].alternatives[i];
      Result<int64_t> message = evaluate(*sizes.messageBytes, maxBytes, [&] { return where + ": message"; }),
                      round =
                          evaluate(*sizes.roundBytes, maxBytes, [&] { return where + ": exchanged bytes"; });
      if (!message || !round)
        return (message ? round : message).error();
      messageBytes = *message;
      for (CollectiveCandidate &candidate : candidates)
        if (candidate.algorithm == step.alternatives[i].collective->algorithm)
          candidate.roundBytes = std::max(candidate.roundBytes, static_cast<size_t>(*round));
    }
    const CollectiveAlgorithm algorithm = communicator->choose(static_cast<size_t>(messageBytes), candidates);
    for (size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].algorithm == algorithm) {
        result.roundBytes = std::max(result.roundBytes, candidates[i].roundBytes);
        return fitting[i];
      }
    return badInput(where + ": the communicator takes an algorithm that there is not");
  }

  Status addLaunch(uint32_t number, const Alternative &alternative) {
    using State = ShapePlan::State;
    const ShapeIndex::Launch &sizes = index.launches[number];
    const KernelLaunch &source = *sizes.source;
    auto where = [&] { return placeOf(source); };
    ShapePlan::Launch launch{number, &source, &alternative, source.kernel};
    for (int axis = 0; axis < 3; ++axis) {
      Result<int64_t> extent = evaluate(sizes.grid[axis], axis == 0 ? INT32_MAX : 65535,
                                        [&] { return fmt::format("{}: grid {}", where(), "xyz"[axis]); });
      if (!extent)
        return extent.error();
      launch.grid[axis] = static_cast<uint32_t>(*extent);
    }
    if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) {
      skipped = true;
      result.states[number] = State::Empty;
      return {};
    }
    for (size_t i = 0; i < source.arguments.size(); ++i) {
      Result<ShapePlan::Argument> argument = std::visit(
          [&](const auto &kind) { return argumentOf(kind, sizes.arguments[i], where); }, source.arguments[i]);
      if (!argument)
        return argument.error();
      auto *workspace = std::get_if<WorkspaceArgument>(&source.arguments[i]);
      launch.clearsWorkspace |= workspace && workspace->contents == WorkspaceArgument::Contents::Zeroed;
      launch.arguments.push_back(std::move(*argument));
    }
    // A kernel may read early what the launch before it in the plan does not write; without that launch, it
    // follows one that may.
    launch.overlapsPrevious = plan.kernels[source.kernel].usesPdl && !std::exchange(skipped, false) &&
                              !inRounds && !launch.clearsWorkspace && !result.launches.empty() &&
                              plan.kernels[result.launches.back().kernel].usesPdl;
    result.states[number] = State::Launched;
    result.positions[number] = static_cast<uint32_t>(result.launches.size());
    result.launches.push_back(std::move(launch));
    return {};
  }

  // An argument by its kind.
  using Argument = ShapePlan::Argument;
  template <class Where>
  Result<Argument> argumentOf(const PointerArgument &, const ShapeIndex::Argument &sizes,
                              const Where &where) {
    Result<int64_t> offset = offsetIn(sizes, where);
    if (!offset)
      return offset.error();
    return Argument{Argument::Kind::Pointer, sizes.place, static_cast<uint64_t>(*offset)};
  }
  template <class Where>
  Result<Argument> argumentOf(const ScalarArgument &, const ShapeIndex::Argument &sizes, const Where &where) {
    Result<int64_t> value = evaluate(sizes.value);
    if (!value)
      return badInput(fmt::format("{}: {}", where(), value.error().message));
    return Argument{Argument::Kind::Scalar, 0, static_cast<uint64_t>(*value)};
  }
  template <class Where>
  Result<Argument> argumentOf(const TensorMapArgument &map, const ShapeIndex::Argument &sizes,
                              const Where &where) {
    auto inMap = [&] {
      return fmt::format("{}: a tensor map of {}", where(), plan.buffers[map.buffer].name);
    };
    Argument argument{Argument::Kind::TensorMap, sizes.place};
    for (const Size &extent : sizes.extents) {
      Result<int64_t> value = evaluate(extent, maxBytes, inMap);
      if (!value)
        return value.error();
      argument.extents.push_back(*value);
    }
    if (!isEmptyView(argument)) {
      Result<int64_t> offset = offsetIn(sizes, where);
      if (!offset)
        return offset.error();
      argument.value = static_cast<uint64_t>(*offset);
    }
    if (std::optional<std::string> problem = tensorMapProblem(map, argument, result.placeBytes[sizes.place]))
      return badInput(fmt::format("{} {}", inMap(), *problem));
    return argument;
  }
  template <class Where>
  Result<Argument> argumentOf(const WorkspaceArgument &, const ShapeIndex::Argument &sizes, const Where &) {
    return Argument{Argument::Kind::Workspace, sizes.place, result.placeBytes[sizes.place]};
  }
  template <class Where>
  Result<Argument> argumentOf(const ExchangeArgument &, const ShapeIndex::Argument &, const Where &) {
    return Argument{Argument::Kind::Exchange};
  }

  template <class Where>
  Result<int64_t> offsetIn(const ShapeIndex::Argument &sizes, const Where &where) {
    return evaluate(sizes.value, static_cast<int64_t>(result.placeBytes[sizes.place]), [&] {
      return fmt::format("{}: byte offset into {}", where(), plan.buffers[sizes.place].name);
    });
  }

  Status addOutput(const PortPlan &port, const ShapeIndex::Port &sizes) {
    auto where = [&] { return "output " + port.name; };
    Shape shape;
    Result<size_t> bytes = bytesOf(port.type, sizes.shape, where, &shape);
    if (!bytes)
      return bytes.error();
    Result<int64_t> offset = evaluate(sizes.byteOffset, maxBytes, where);
    if (!offset)
      return offset.error();
    if (Status status = addStrides(port, sizes, "output", result.outputStrides); !status)
      return status;
    if (static_cast<size_t>(*offset) + *bytes > result.placeBytes[port.buffer])
      return badInput(fmt::format("{}: {} bytes at {} lie outside buffer {} of {} bytes", where(), *bytes,
                                  *offset, plan.buffers[port.buffer].name, result.placeBytes[port.buffer]));
    result.outputShapes.push_back(std::move(shape));
    result.outputOffsets.push_back(static_cast<size_t>(*offset));
    return {};
  }

  /// A cache must hold what the run needs.
  Status addStrides(const PortPlan &port, const ShapeIndex::Port &sizes, std::string_view kind,
                    std::vector<Shape> &list) {
    Shape &strides = list.emplace_back();
    auto where = [&] { return fmt::format("{} {}", kind, port.name); };
    for (size_t dim = 0; dim < port.strides.size(); ++dim) {
      Result<int64_t> size = evaluate(sizes.shape[dim], maxBytes, where),
                      room = evaluate(sizes.room[dim], maxBytes, where),
                      stride = evaluate(sizes.strides[dim], maxBytes, where);
      if (!size || !room || !stride)
        return (!size ? size : !room ? room : stride).error();
      if (*size > *room)
        return badInput(
            fmt::format("{}: dim {} needs {} positions, the cache was compiled for a capacity of {}", where(),
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
  const MeasuredChoice &measured;
  ShapePlan result;
  bool skipped = false;  ///< the launch before had nothing to do
  bool isLinked = false; ///< the first of a link has been launched, the last not yet
  bool inRounds = false; ///< of a loop: each follows itself too
};

Result<ShapePlan> ShapePlanner::plan(const SymbolValues &symbols, const Communicator *communicator,
                                     const MeasuredChoice &measured) {
  std::vector<int64_t> numbered;
  for (const std::string &name : index.table.symbols()) {
    auto found = symbols.find(name);
    numbered.push_back(found == symbols.end() ? DimTable::unknown : found->second);
  }
  begin(numbered);
  return Planning(*this, symbols, communicator, measured).run();
}

Result<ShapePlan> ShapePlanner::plan(std::span<const int64_t> symbols, const Communicator *communicator,
                                     const MeasuredChoice &measured) {
  begin(symbols);
  return Planning(*this, named(symbols), communicator, measured).run();
}

Result<ShapePlan> planShapes(const ProgramPlan &plan, const SymbolValues &symbols,
                             const Communicator *communicator, const MeasuredChoice &measured) {
  return ShapePlanner(plan).plan(symbols, communicator, measured);
}

} // namespace fusion
