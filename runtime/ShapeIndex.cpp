#include "runtime/ShapeIndex.h"

#include "ir/base/BindSymbols.h"

namespace fusion {

ShapeIndex::ShapeIndex(const ProgramPlan &plan) {
  for (const BufferPlan &buffer : plan.buffers)
    buffers.push_back(sizes(buffer.shape));
  for (const KernelLaunch &source : plan.launches) {
    Launch &launch = launches.emplace_back();
    const Dim *grid[] = {&source.gridX, &source.gridY, &source.gridZ};
    for (int axis = 0; axis < 3; ++axis)
      launch.grid[axis] = size(*grid[axis]);
    if (source.when)
      launch.when = size(source.when->size);
    if (source.collective) {
      launch.messageBytes = size(source.collective->messageBytes);
      launch.roundBytes = size(source.collective->roundBytes);
    }
    for (const KernelLaunch::Argument &argument : source.arguments)
      launch.arguments.push_back(size(argument.buffer ? argument.byteOffset : argument.value));
    launch.bytesRead = size(source.bytesRead);
    launch.bytesWritten = size(source.bytesWritten);
    launch.flops = size(source.flops);
  }
  for (const PortPlan &input : plan.inputs)
    inputs.push_back(port(plan, input));
  for (const PortPlan &output : plan.outputs)
    outputs.push_back(port(plan, output));
  for (const ProgramPlan::Equality &equality : plan.equalities)
    equalities.push_back({size(equality.left), size(equality.right)});
  rank = table.symbol(std::string(rankSymbol));
  findDependents(plan);
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

void ShapeIndex::findDependents(const ProgramPlan &plan) {
  bySymbol.resize(table.symbols().size());
  for (size_t i = 0; i < buffers.size(); ++i)
    for (const Size &dim : buffers[i])
      depends(dim, &Dependents::buffers, i);
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch &launch = launches[i];
    for (const Size &extent : launch.grid)
      depends(extent, &Dependents::launches, i);
    for (const std::optional<Size> *size : {&launch.when, &launch.messageBytes, &launch.roundBytes})
      if (*size)
        depends(**size, &Dependents::launches, i);
    for (size_t j = 0; j < launch.arguments.size(); ++j) {
      const Size &argument = launch.arguments[j];
      depends(argument, &Dependents::launches, i);
      // An offset must stay inside a buffer that shrinks.
      const KernelLaunch::Argument &source = plan.launches[i].arguments[j];
      if (source.buffer && !(argument.number == Size::isConstant && argument.constant == 0))
        for (const Size &dim : buffers[*source.buffer])
          depends(dim, &Dependents::launches, i);
    }
  }
  auto addPorts = [&](const std::vector<Port> &ports, const std::vector<PortPlan> &plans, auto list) {
    for (size_t i = 0; i < ports.size(); ++i) {
      const std::vector<Size> *lists[] = {&ports[i].shape, &ports[i].strides, &ports[i].room, &buffers[plans[i].buffer]};
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
