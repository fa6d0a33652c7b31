// From one set of shapes to another of which most sizes are the same, as in the steps of a decode loop.
#include "runtime/Arguments.h"

#include <algorithm>
#include <bit>

namespace fusion {

static constexpr int64_t maxBytes = int64_t(1) << 46; // as for a plan of its own

/// For a temporary that has outgrown its place: it will grow again.
static size_t askFor(size_t bytes) {
  constexpr size_t large = 64 << 20;
  return bytes < large ? std::bit_ceil(bytes) : bytes + bytes / 4;
}

/// Finds out everything that changes, then changes it.
class ShapePlanner::Updating {
public:
  Updating(ShapePlanner &planner, ShapePlan &shapes, std::span<const int64_t> symbols,
           std::vector<uint32_t> &changed)
      : planner(planner), plan(planner.program), index(planner.index), shapes(shapes), symbols(symbols),
        changed(changed) {}

  bool run() {
    for (size_t i = 0; i < index.repetitions.size(); ++i)
      if (planner.value(index.repetitions[i]) != shapes.repetitions[i].count)
        return false;
    for (uint32_t symbol = 0; symbol < symbols.size(); ++symbol)
      if (symbols[symbol] != shapes.symbols[symbol]) {
        const ShapeIndex::Dependents &found = index.bySymbol[symbol];
        affected.places.insert(affected.places.end(), found.places.begin(), found.places.end());
        affected.steps.insert(affected.steps.end(), found.steps.begin(), found.steps.end());
        affected.launches.insert(affected.launches.end(), found.launches.begin(), found.launches.end());
        affected.inputs.insert(affected.inputs.end(), found.inputs.begin(), found.inputs.end());
        affected.outputs.insert(affected.outputs.end(), found.outputs.begin(), found.outputs.end());
      }
    for (auto list :
         {&affected.places, &affected.steps, &affected.launches, &affected.inputs, &affected.outputs}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    return std::all_of(affected.places.begin(), affected.places.end(),
                       [&](uint32_t i) { return sizePlace(i); }) &&
           std::none_of(affected.steps.begin(), affected.steps.end(),
                        [&](uint32_t i) { return planner.choiceChanges(i, shapes); }) &&
           std::all_of(affected.launches.begin(), affected.launches.end(),
                       [&](uint32_t i) { return sizeLaunch(i); }) &&
           std::all_of(affected.outputs.begin(), affected.outputs.end(),
                       [&](uint32_t i) { return sizeOutput(i); }) &&
           std::all_of(affected.inputs.begin(), affected.inputs.end(),
                       [&](uint32_t i) { return sizeStrides(index.inputs[i], i, inputStrides); }) &&
           commit();
  }

private:
  /// In [0, limit].
  std::optional<int64_t> value(const Size &size, int64_t limit) {
    std::optional<int64_t> value = planner.value(size);
    return value && *value >= 0 && *value <= limit ? value : std::nullopt;
  }

  std::optional<size_t> bytesOf(DType type, const std::vector<Size> &dims, Shape *shape = nullptr) {
    auto bytes = static_cast<int64_t>(byteSize(type));
    for (const Size &dim : dims) {
      std::optional<int64_t> extent = value(dim, maxBytes);
      if (!extent || __builtin_mul_overflow(bytes, *extent, &bytes) || bytes > maxBytes)
        return std::nullopt;
      if (shape)
        shape->push_back(*extent);
    }
    return static_cast<size_t>(bytes);
  }

  bool sizePlace(uint32_t number) {
    const ShapeIndex::Place &place = index.places[number];
    std::optional<size_t> bytes = bytesOf(place.type, place.shape);
    if (!bytes || (place.isKeptZero && *bytes > shapes.keptZeroBytes))
      return false;
    places.push_back({number, *bytes});
    return true;
  }

  size_t bytesOfPlace(uint32_t number) const {
    auto found = std::lower_bound(places.begin(), places.end(), std::pair(number, size_t(0)));
    return found != places.end() && found->first == number ? found->second : shapes.placeBytes[number];
  }

  bool sizeLaunch(uint32_t number) {
    using State = ShapePlan::State;
    const ShapeIndex::Launch &sizes = index.launches[number];
    const State state = shapes.states[number];
    if (state == State::NotChosen)
      return true;
    std::array<uint32_t, 3> grid;
    for (size_t axis = 0; axis < 3; ++axis) {
      std::optional<int64_t> extent = value(sizes.grid[axis], axis == 0 ? INT32_MAX : 65535);
      if (!extent)
        return false;
      grid[axis] = static_cast<uint32_t>(*extent);
    }
    const bool isEmpty = grid[0] == 0 || grid[1] == 0 || grid[2] == 0;
    if (isEmpty != (state == State::Empty))
      return false;
    if (isEmpty)
      return true;
    ShapePlan::Launch &launch = shapes.launches[shapes.positions[number]];
    bool differs = grid != launch.grid;
    if (differs)
      grids.push_back({&launch.grid, grid});
    for (size_t i = 0; i < launch.arguments.size(); ++i) {
      ShapePlan::Argument &argument = launch.arguments[i];
      std::optional<ShapePlan::Argument> now =
          std::visit([&](const auto &kind) { return argumentOf(kind, argument, sizes.arguments[i]); },
                     sizes.source->arguments[i]);
      if (!now)
        return false;
      if (*now == argument)
        continue;
      arguments.push_back({&argument, std::move(*now)});
      differs = true;
    }
    if (differs)
      positions.push_back(shapes.positions[number]);
    return true;
  }

  // An argument by its kind, at the new sizes.
  using Argument = ShapePlan::Argument;
  std::optional<Argument> argumentOf(const PointerArgument &, const Argument &before,
                                     const ShapeIndex::Argument &sizes) {
    std::optional<int64_t> offset = value(sizes.value, static_cast<int64_t>(bytesOfPlace(before.place)));
    return offset ? std::optional(Argument{before.kind, before.place, static_cast<uint64_t>(*offset)})
                  : std::nullopt;
  }
  std::optional<Argument> argumentOf(const ScalarArgument &, const Argument &before,
                                     const ShapeIndex::Argument &sizes) {
    std::optional<int64_t> number = planner.value(sizes.value);
    return number ? std::optional(Argument{before.kind, 0, static_cast<uint64_t>(*number)}) : std::nullopt;
  }
  std::optional<Argument> argumentOf(const TensorMapArgument &map, const Argument &before,
                                     const ShapeIndex::Argument &sizes) {
    Argument now{before.kind, before.place};
    for (const Size &size : sizes.extents) {
      std::optional<int64_t> extent = value(size, maxBytes);
      if (!extent)
        return std::nullopt;
      now.extents.push_back(*extent);
    }
    if (!isEmptyView(now)) {
      std::optional<Argument> pointer = argumentOf(PointerArgument(), before, sizes);
      if (!pointer)
        return std::nullopt;
      now.value = pointer->value;
    }
    return tensorMapProblem(map, now, bytesOfPlace(before.place)) ? std::nullopt : std::optional(now);
  }
  std::optional<Argument> argumentOf(const WorkspaceArgument &, const Argument &before,
                                     const ShapeIndex::Argument &) {
    return Argument{before.kind, before.place, bytesOfPlace(before.place)};
  }
  std::optional<Argument> argumentOf(const ExchangeArgument &, const Argument &before,
                                     const ShapeIndex::Argument &) {
    return before;
  }

  bool sizeOutput(uint32_t number) {
    const PortPlan &port = plan.outputs[number];
    const ShapeIndex::Port &sizes = index.outputs[number];
    Shape shape;
    std::optional<size_t> bytes = bytesOf(port.type, sizes.shape, &shape);
    std::optional<int64_t> offset = value(sizes.byteOffset, maxBytes);
    if (!bytes || !offset || static_cast<size_t>(*offset) + *bytes > bytesOfPlace(port.buffer))
      return false;
    outputShapes.push_back({number, std::move(shape)});
    outputOffsets.push_back({number, static_cast<size_t>(*offset)});
    return sizeStrides(sizes, number, outputStrides);
  }

  bool sizeStrides(const ShapeIndex::Port &sizes, uint32_t number,
                   std::vector<std::pair<uint32_t, Shape>> &list) {
    if (sizes.strides.empty())
      return true;
    Shape strides;
    for (size_t dim = 0; dim < sizes.strides.size(); ++dim) {
      std::optional<int64_t> size = value(sizes.shape[dim], maxBytes),
                             room = value(sizes.room[dim], maxBytes),
                             stride = value(sizes.strides[dim], maxBytes);
      if (!size || !room || !stride || *size > *room)
        return false;
      strides.push_back(*stride);
    }
    list.push_back({number, std::move(strides)});
    return true;
  }

  bool commit() {
    shapes.symbols.assign(symbols.begin(), symbols.end());
    bool fits = true;
    for (auto [place, bytes] : places) {
      shapes.placeBytes[place] = bytes;
      if (!index.places[place].isInArena || bytes <= shapes.roomBytes[place])
        continue;
      fits = false;
      shapes.askedBytes[place] = askFor(bytes);
    }
    for (auto &[grid, now] : grids)
      *grid = now;
    for (auto &[argument, now] : arguments)
      *argument = std::move(now);
    for (auto &[port, shape] : outputShapes)
      shapes.outputShapes[port] = std::move(shape);
    for (auto [port, offset] : outputOffsets)
      shapes.outputOffsets[port] = offset;
    for (auto &[port, strides] : outputStrides)
      shapes.outputStrides[port] = std::move(strides);
    for (auto &[port, strides] : inputStrides)
      shapes.inputStrides[port] = std::move(strides);
    if (!fits)
      planner.placeTemporaries(shapes);
    changed = std::move(positions);
    return true;
  }

  ShapePlanner &planner;
  const ProgramPlan &plan;
  const ShapeIndex &index;
  ShapePlan &shapes;
  const std::span<const int64_t> symbols;
  std::vector<uint32_t> &changed;

  ShapeIndex::Dependents affected;
  // What will be, in the order of the indices.
  std::vector<std::pair<uint32_t, size_t>> places, outputOffsets;
  std::vector<std::pair<uint32_t, Shape>> outputShapes, inputStrides, outputStrides;
  std::vector<std::pair<std::array<uint32_t, 3> *, std::array<uint32_t, 3>>> grids;
  std::vector<std::pair<ShapePlan::Argument *, ShapePlan::Argument>> arguments;
  std::vector<uint32_t> positions;
};

bool ShapePlanner::changes(const Size &size, const ShapePlan &shapes) const {
  if (size.number == Size::isConstant)
    return false;
  const std::span<const uint32_t> symbols = index.table.symbolsOf(size.number);
  return std::any_of(symbols.begin(), symbols.end(),
                     [&](uint32_t symbol) { return symbolValues[symbol] != shapes.symbols[symbol]; });
}

bool ShapePlanner::choiceChanges(uint32_t number, const ShapePlan &shapes) {
  const Step &step = program.steps[number];
  const ShapeIndex::Step &sizes = index.steps[number];
  if (step.choice == Step::Choice::Ranks)
    // Another message may mean another algorithm, in which all ranks must agree.
    for (const ShapeIndex::Alternative &alternative : sizes.alternatives)
      if (changes(*alternative.messageBytes, shapes) || changes(*alternative.roundBytes, shapes))
        return true;
  bool failed = false;
  const std::vector<uint32_t> fitting = candidates(step, [&](uint32_t i) {
    for (size_t j = 0; j < step.alternatives[i].when.size(); ++j) {
      const std::optional<int64_t> size = value(sizes.alternatives[i].when[j]);
      failed |= !size;
      if (!size || !step.alternatives[i].when[j].holds(*size))
        return false;
    }
    return true;
  });
  if (failed)
    return true;
  const uint32_t chosen = shapes.chosen[number];
  if (chosen == ShapePlan::none)
    return !fitting.empty();
  return std::find(fitting.begin(), fitting.end(), chosen) == fitting.end() ||
         (step.choice == Step::Choice::Measurement &&
          measurementChanges(number, shapes, /*hasChoice=*/fitting.size() > 1));
}

bool ShapePlanner::measurementChanges(uint32_t number, const ShapePlan &shapes, bool hasChoice) {
  auto before = [&](const Size &size) -> std::optional<int64_t> {
    return size.number == Size::isConstant ? size.constant
                                           : index.table.evaluate(size.number, shapes.symbols);
  };
  const Step &step = program.steps[number];
  const ShapeIndex::Step &sizes = index.steps[number];
  for (size_t i = 0; i < step.alternatives.size(); ++i)
    for (size_t j = 0; j < step.alternatives[i].when.size(); ++j) {
      const Size &size = sizes.alternatives[i].when[j];
      const SizeRange &range = step.alternatives[i].when[j];
      const std::optional<int64_t> was = before(size), is = value(size);
      if (!was || !is || range.holds(*was) != range.holds(*is))
        return true;
    }
  return hasChoice && std::any_of(sizes.matmul.begin(), sizes.matmul.end(), [&](const Size &size) {
           const std::optional<int64_t> was = before(size), is = value(size);
           return !was || !is || sizeClass(*was) != sizeClass(*is);
         });
}

size_t ShapePlanner::launchesThatDepend(const ShapePlan &shapes, std::span<const int64_t> symbols) {
  std::vector<bool> depends(shapes.launches.size(), false);
  size_t count = 0;
  for (uint32_t symbol = 0; symbol < symbols.size(); ++symbol) {
    if (symbols[symbol] == shapes.symbols[symbol])
      continue;
    for (uint32_t launch : index.bySymbol[symbol].launches)
      if (shapes.states[launch] == ShapePlan::State::Launched && !depends[shapes.positions[launch]]) {
        depends[shapes.positions[launch]] = true;
        ++count;
      }
  }
  return count;
}

bool ShapePlanner::update(ShapePlan &shapes, std::span<const int64_t> symbols,
                          std::vector<uint32_t> &changed) {
  begin(symbols);
  return Updating(*this, shapes, symbols, changed).run();
}

} // namespace fusion
