#include "runtime/ShapeIndex.h"

#include "ir/base/BindSymbols.h"

namespace fusion {

ShapeIndex::ShapeIndex(const ProgramPlan &plan) {
  for (const BufferPlan &buffer : plan.buffers)
    places.push_back({buffer.type, sizes(buffer.shape), buffer.kind == BufferPlan::Kind::Temporary, false,
                      "buffer " + buffer.name});
  for (const fusion::Step &source : plan.steps)
    steps.push_back(step(plan, source));
  for (const ProgramPlan::Repetition &one : plan.repetitions)
    repetitions.push_back(size(one.count));
  for (const PortPlan &input : plan.inputs)
    inputs.push_back(port(plan, input));
  for (const PortPlan &output : plan.outputs)
    outputs.push_back(port(plan, output));
  for (const ProgramPlan::Equality &equality : plan.equalities)
    equalities.push_back({size(equality.left), size(equality.right)});
  rank = table.symbol(std::string(rankSymbol));
  findDependents(plan);
}

ShapeIndex::Step ShapeIndex::step(const ProgramPlan &plan, const fusion::Step &source) {
  Step step;
  for (const fusion::Alternative &alternative : source.alternatives) {
    Alternative &made = step.alternatives.emplace_back();
    for (const SizeRange &range : alternative.when)
      made.when.push_back(size(range.size));
    if (alternative.collective) {
      made.messageBytes = size(alternative.collective->messageBytes);
      made.roundBytes = size(alternative.collective->roundBytes);
    }
    made.firstLaunch = static_cast<uint32_t>(launches.size());
    for (const KernelLaunch &one : alternative.launches) {
      launches.push_back(launch(plan, one));
      if (source.choice == fusion::Step::Choice::Measurement && plan.kernels[one.kernel].matmul &&
          step.matmul.empty())
        for (size_t i = 3; i < 7; ++i)
          step.matmul.push_back(launches.back().arguments[i].value);
    }
    if (alternative.linked)
      launches.push_back(launch(plan, *alternative.linked));
  }
  if (source.choice == fusion::Step::Choice::Measurement && step.matmul.empty()) // two kernels of ours
    for (const Dim &one : sizesOf(source))
      step.matmul.push_back(size(one));
  return step;
}

ShapeIndex::Launch ShapeIndex::launch(const ProgramPlan &plan, const KernelLaunch &source) {
  Launch launch{&source, {size(source.gridX), size(source.gridY), size(source.gridZ)}, {}, {}, {}, {}};
  for (size_t i = 0; i < source.arguments.size(); ++i)
    launch.arguments.push_back(argument(plan, source, i));
  launch.bytesRead = size(source.bytesRead);
  launch.bytesWritten = size(source.bytesWritten);
  launch.flops = size(source.flops);
  return launch;
}

ShapeIndex::Argument ShapeIndex::argument(const ProgramPlan &plan, const KernelLaunch &source, size_t index) {
  const KernelArgument &argument = source.arguments[index];
  if (auto *pointer = std::get_if<PointerArgument>(&argument))
    return {size(pointer->byteOffset), {}, pointer->buffer};
  if (auto *scalar = std::get_if<ScalarArgument>(&argument))
    return {size(scalar->value), {}, 0};
  if (auto *map = std::get_if<TensorMapArgument>(&argument)) {
    std::vector<Size> extents = sizes(map->shape), strides = sizes(map->strides);
    extents.insert(extents.end(), strides.begin(), strides.end());
    return {size(map->byteOffset), std::move(extents), map->buffer};
  }
  if (auto *workspace = std::get_if<WorkspaceArgument>(&argument)) {
    const bool isKeptZero = workspace->contents == WorkspaceArgument::Contents::KeptZero;
    places.push_back({DType::U8, {size(workspace->bytes)}, !isKeptZero, isKeptZero,
                      "workspace of " + plan.kernels[source.kernel].name});
    return {size(workspace->bytes), {}, static_cast<uint32_t>(places.size() - 1)};
  }
  static const Dim none = 0;
  return {size(none), {}, 0}; // the exchange
}

ShapeIndex::Size ShapeIndex::size(const Dim &dim) {
  if (std::optional<int64_t> constant = dim.constant())
    return {&dim, Size::isConstant, *constant};
  return {&dim, table.add(dim), 0};
}

std::vector<ShapeIndex::Size> ShapeIndex::sizes(const DimShape &dims) {
  std::vector<Size> result;
  for (const Dim &dim : dims)
    result.push_back(size(dim));
  return result;
}

ShapeIndex::Port ShapeIndex::port(const ProgramPlan &plan, const PortPlan &port) {
  Port result{sizes(port.shape), sizes(port.strides), {}, size(port.byteOffset)};
  if (!port.strides.empty())
    result.room = sizes(plan.buffers[port.buffer].shape);
  return result;
}

void ShapeIndex::depends(const Size &size, std::vector<uint32_t> Dependents::*list, size_t index) {
  if (size.number == Size::isConstant)
    return;
  for (uint32_t symbol : table.symbolsOf(size.number)) {
    std::vector<uint32_t> &dependents = bySymbol[symbol].*list;
    if (dependents.empty() || dependents.back() != index)
      dependents.push_back(static_cast<uint32_t>(index));
  }
}

void ShapeIndex::dependsOnSizes(size_t step) {
  for (const Alternative &alternative : steps[step].alternatives) {
    for (const Size &when : alternative.when)
      depends(when, &Dependents::steps, step);
    for (const std::optional<Size> *size : {&alternative.messageBytes, &alternative.roundBytes})
      if (*size)
        depends(**size, &Dependents::steps, step);
  }
  for (const Size &size : steps[step].matmul)
    depends(size, &Dependents::steps, step);
}

void ShapeIndex::dependsOnSizes(const Launch &launch, size_t number) {
  for (const Size &extent : launch.grid)
    depends(extent, &Dependents::launches, number);
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    const Argument &argument = launch.arguments[i];
    depends(argument.value, &Dependents::launches, number);
    for (const Size &extent : argument.extents)
      depends(extent, &Dependents::launches, number);
    // What is used must stay inside a buffer that shrinks.
    const bool isWhole =
        argument.value.number == Size::isConstant && argument.value.constant == 0 && argument.extents.empty();
    if (bufferOf(launch.source->arguments[i]) && !isWhole)
      for (const Size &dim : places[argument.place].shape)
        depends(dim, &Dependents::launches, number);
  }
}

void ShapeIndex::findDependents(const ProgramPlan &plan) {
  bySymbol.resize(table.symbols().size());
  for (size_t i = 0; i < places.size(); ++i)
    for (const Size &dim : places[i].shape)
      depends(dim, &Dependents::places, i);
  for (size_t i = 0; i < steps.size(); ++i)
    dependsOnSizes(i);
  for (size_t i = 0; i < launches.size(); ++i)
    dependsOnSizes(launches[i], i);
  auto addPorts = [&](const std::vector<Port> &ports, const std::vector<PortPlan> &plans, auto list) {
    for (size_t i = 0; i < ports.size(); ++i) {
      const std::vector<Size> *lists[] = {&ports[i].shape, &ports[i].strides, &ports[i].room,
                                          &places[plans[i].buffer].shape};
      for (const std::vector<Size> *dims : lists)
        for (const Size &dim : *dims)
          depends(dim, list, i);
      depends(ports[i].byteOffset, list, i);
    }
  };
  addPorts(inputs, plan.inputs, &Dependents::inputs);
  addPorts(outputs, plan.outputs, &Dependents::outputs);
}

} // namespace fusion
