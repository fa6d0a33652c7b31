// From one set of shapes to another of which most sizes are the same, as in the steps of a decode loop.
#include "runtime/ShapePlan.h"

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
  Updating(ShapePlanner &planner, ShapePlan &shapes, std::span<const int64_t> symbols, std::vector<uint32_t> &changed)
      : planner(planner), plan(planner.program), index(planner.index), shapes(shapes), symbols(symbols), changed(changed) {}

  bool run() {
    for (uint32_t symbol = 0; symbol < symbols.size(); ++symbol)
      if (symbols[symbol] != shapes.symbols[symbol]) {
        const ShapeIndex::Dependents &found = index.bySymbol[symbol];
        affected.buffers.insert(affected.buffers.end(), found.buffers.begin(), found.buffers.end());
        affected.launches.insert(affected.launches.end(), found.launches.begin(), found.launches.end());
        affected.inputs.insert(affected.inputs.end(), found.inputs.begin(), found.inputs.end());
        affected.outputs.insert(affected.outputs.end(), found.outputs.begin(), found.outputs.end());
      }
    for (auto list : {&affected.buffers, &affected.launches, &affected.inputs, &affected.outputs}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    return std::all_of(affected.buffers.begin(), affected.buffers.end(), [&](uint32_t i) { return sizeBuffer(i); }) &&
           std::all_of(affected.launches.begin(), affected.launches.end(), [&](uint32_t i) { return sizeLaunch(i); }) &&
           std::all_of(affected.outputs.begin(), affected.outputs.end(), [&](uint32_t i) { return sizeOutput(i); }) &&
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

  bool sizeBuffer(uint32_t number) {
    std::optional<size_t> bytes = bytesOf(plan.buffers[number].type, index.buffers[number]);
    if (bytes)
      buffers.push_back({number, *bytes});
    return bytes.has_value();
  }

  size_t bytesOfBuffer(BufferId number) const {
    auto found = std::lower_bound(buffers.begin(), buffers.end(), std::pair(number, size_t(0)));
    return found != buffers.end() && found->first == number ? found->second : shapes.bufferBytes[number];
  }

  bool sizeLaunch(uint32_t number) {
    using Fate = ShapePlan::Fate;
    const ShapeIndex::Launch &sizes = index.launches[number];
    // Another size may mean another way to take the sum, in which all ranks must agree.
    for (const std::optional<Size> *size : {&sizes.messageBytes, &sizes.roundBytes})
      if (*size && planner.changes(**size, shapes))
        return false;
    if (plan.kernels[plan.launches[number].kernel].product && planner.choiceChanges(number, shapes))
      return false;
    const Fate fate = shapes.fates[number];
    if (fate == Fate::OtherForm)
      return true;
    if (sizes.when) {
      std::optional<int64_t> size = planner.value(*sizes.when);
      if (!size)
        return false;
      const bool holds = plan.launches[number].when->holds(*size);
      if (holds != (fate == Fate::Launched || fate == Fate::Empty) || (!holds && (*size < 1) != (fate == Fate::Nothing)))
        return false;
      if (!holds)
        return true;
    }
    std::array<uint32_t, 3> grid;
    for (size_t axis = 0; axis < 3; ++axis) {
      std::optional<int64_t> extent = value(sizes.grid[axis], axis == 0 ? INT32_MAX : 65535);
      if (!extent)
        return false;
      grid[axis] = static_cast<uint32_t>(*extent);
    }
    const bool isEmpty = grid[0] == 0 || grid[1] == 0 || grid[2] == 0;
    if (isEmpty != (fate == Fate::Empty))
      return false;
    if (isEmpty)
      return true;
    ShapePlan::Launch &launch = shapes.launches[shapes.positions[number]];
    bool differs = grid != launch.grid;
    if (differs)
      grids.push_back({&launch.grid, grid});
    for (size_t i = 0; i < launch.arguments.size(); ++i) {
      ShapePlan::Argument &argument = launch.arguments[i];
      if (argument.kind == ShapePlan::Argument::Kind::Exchange)
        continue;
      const Size &size = sizes.arguments[i];
      std::optional<int64_t> now = argument.kind == ShapePlan::Argument::Kind::Number
                                       ? planner.value(size)
                                       : value(size, static_cast<int64_t>(bytesOfBuffer(argument.buffer)));
      if (!now)
        return false;
      if (static_cast<uint64_t>(*now) == argument.value)
        continue;
      arguments.push_back({&argument.value, static_cast<uint64_t>(*now)});
      differs = true;
    }
    if (differs)
      positions.push_back(shapes.positions[number]);
    return true;
  }

  bool sizeOutput(uint32_t number) {
    const PortPlan &port = plan.outputs[number];
    const ShapeIndex::Port &sizes = index.outputs[number];
    Shape shape;
    std::optional<size_t> bytes = bytesOf(port.type, sizes.shape, &shape);
    std::optional<int64_t> offset = value(sizes.byteOffset, maxBytes);
    if (!bytes || !offset || static_cast<size_t>(*offset) + *bytes > bytesOfBuffer(port.buffer))
      return false;
    outputShapes.push_back({number, std::move(shape)});
    outputOffsets.push_back({number, static_cast<size_t>(*offset)});
    return sizeStrides(sizes, number, outputStrides);
  }

  bool sizeStrides(const ShapeIndex::Port &sizes, uint32_t number, std::vector<std::pair<uint32_t, Shape>> &list) {
    if (sizes.strides.empty())
      return true;
    Shape strides;
    for (size_t dim = 0; dim < sizes.strides.size(); ++dim) {
      std::optional<int64_t> size = value(sizes.shape[dim], maxBytes), room = value(sizes.room[dim], maxBytes),
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
    for (auto [buffer, bytes] : buffers) {
      shapes.bufferBytes[buffer] = bytes;
      if (plan.buffers[buffer].kind != BufferPlan::Kind::Temporary || bytes <= shapes.roomBytes[buffer])
        continue;
      fits = false;
      shapes.askedBytes[buffer] = askFor(bytes);
    }
    for (auto &[grid, now] : grids)
      *grid = now;
    for (auto [argument, now] : arguments)
      *argument = now;
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
  std::vector<std::pair<uint32_t, size_t>> buffers, outputOffsets;
  std::vector<std::pair<uint32_t, Shape>> outputShapes, inputStrides, outputStrides;
  std::vector<std::pair<std::array<uint32_t, 3> *, std::array<uint32_t, 3>>> grids;
  std::vector<std::pair<uint64_t *, uint64_t>> arguments;
  std::vector<uint32_t> positions;
};

bool ShapePlanner::changes(const Size &size, const ShapePlan &shapes) const {
  if (size.number == Size::isConstant)
    return false;
  const std::span<const uint32_t> symbols = index.table.symbolsOf(size.number);
  return std::any_of(symbols.begin(), symbols.end(),
                     [&](uint32_t symbol) { return symbolValues[symbol] != shapes.symbols[symbol]; });
}

bool ShapePlanner::choiceChanges(uint32_t launch, const ShapePlan &shapes) {
  const ShapeIndex::Launch &sizes = index.launches[launch];
  auto before = [&](const Size &size) -> std::optional<int64_t> {
    return size.number == Size::isConstant ? size.constant : index.table.evaluate(size.number, shapes.symbols);
  };
  if (sizes.when) {
    const SizeRange &range = *program.launches[launch].when;
    const std::optional<int64_t> was = before(*sizes.when), is = value(*sizes.when);
    if (!was || !is || range.holds(*was) != range.holds(*is))
      return true;
    if (!range.holds(*is))
      return false;
  }
  for (size_t i = 3; i < 7; ++i) { // m, n, k and the number of matrices
    const std::optional<int64_t> was = before(sizes.arguments[i]), is = value(sizes.arguments[i]);
    if (!was || !is || sizeClass(*was) != sizeClass(*is))
      return true;
  }
  return false;
}

size_t ShapePlanner::launchesThatDepend(const ShapePlan &shapes, std::span<const int64_t> symbols) {
  std::vector<bool> depends(shapes.launches.size(), false);
  size_t count = 0;
  for (uint32_t symbol = 0; symbol < symbols.size(); ++symbol) {
    if (symbols[symbol] == shapes.symbols[symbol])
      continue;
    for (uint32_t launch : index.bySymbol[symbol].launches)
      if (shapes.fates[launch] == ShapePlan::Fate::Launched && !depends[shapes.positions[launch]]) {
        depends[shapes.positions[launch]] = true;
        ++count;
      }
  }
  return count;
}

bool ShapePlanner::update(ShapePlan &shapes, std::span<const int64_t> symbols, std::vector<uint32_t> &changed) {
  begin(symbols);
  return Updating(*this, shapes, symbols, changed).run();
}

} // namespace fusion
