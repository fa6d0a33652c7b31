#include "api/KernelSides.h"

#include "api/Trial.h"
#include "ir/dialect/Mesh.h"
#include "runtime/cuda/Driver.h"

using namespace mlir;

namespace fusion {

Result<KernelSides> KernelSides::create(func::FuncOp function) {
  KernelSides sides;
  sides.function = function;
  sides.ranks = nn::ranksOf(function).value_or(1);
  auto interpreter = Interpreter::create(function, "");
  if (!interpreter)
    return interpreter.error();
  sides.interpreter.emplace(std::move(*interpreter));
  if (sides.ranks > 1) {
    auto ofRanks = RankReference::create(function, "");
    if (!ofRanks)
      return ofRanks.error();
    sides.ofRanks.emplace(std::move(*ofRanks));
  }
  return sides;
}

Status KernelSides::load(ProgramPlan plan) {
  ExecutorOptions options;
  options.target =
      cuda::deviceCount() >= ranks ? ExecutorOptions::Target::Cuda : ExecutorOptions::Target::Emulate;
  options.poison = true;
  if (ranks > 1) {
    auto made = RankGroup::create(std::move(plan), options);
    if (!made)
      return made.error();
    group = std::move(*made);
  } else {
    auto made = Executor::create(std::move(plan), options);
    if (!made)
      return made.error();
    executor = std::move(*made);
  }
  return {};
}

NamedTensors KernelSides::randomInputs(const SymbolValues &symbols, std::mt19937 &random) const {
  std::vector<NamedTensors> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    parts.push_back(fusion::randomInputs(ports(), symbols, {}, random));
    orderRows(function, ports(), parts.back());
  }
  return ofRanks ? joinOutputs(parts, ofRanks->inputs()) : std::move(parts.front());
}

Result<NamedTensors> KernelSides::expected(const NamedTensors &inputs) const {
  return ofRanks ? ofRanks->run(inputs) : interpreter->run(inputs);
}

Result<NamedTensors> KernelSides::actual(const NamedTensors &inputs) {
  auto outputs = group ? group->run(inputs) : executor->run(inputs);
  if (!outputs)
    return outputs.error();
  return group ? group->fetch(*outputs) : executor->fetch(*outputs); // caches stay on the GPUs
}

} // namespace fusion
