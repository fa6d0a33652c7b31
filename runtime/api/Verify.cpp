#include "runtime/api/Verify.h"

#include "codegen/BuildPlan.h"
#include "ir/base/Progress.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"
#include "runtime/Executor.h"
#include "runtime/cuda/Driver.h"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <set>

using namespace mlir;

namespace fusion {

namespace {
/// What symbols stand for in a check. Unequal sizes see more; where they contradict the body, all are one.
struct Sizes {
  int64_t batch, other;
};
constexpr Sizes unequalSizes{2, 5}, equalSizes{4, 4};

/// Relative L2 tolerance of one rounding in the type, times what a reduction over a few thousand elements adds.
double tolerance(DType type) {
  switch (type) {
  case DType::F16: return 2e-3;
  case DType::BF16: return 1.5e-2;
  case DType::F8E4M3: return 5e-2;
  case DType::F8E5M2: return 1e-1;
  default: return isFloat(type) ? 1e-5 : 0;
  }
}

/// Symbols that the body speaks of.
std::set<std::string> symbolsOf(GroupOp group, const nn::SymbolicShapes &shapes) {
  std::set<std::string> symbols;
  auto see = [&](const DimShape &dims) {
    for (const Dim &dim : dims)
      for (const std::string &symbol : dim.symbols())
        symbols.insert(symbol);
  };
  for (Value input : group.getInputs())
    see(shapes[input]);
  for (Operation &op : group.getBody().front().without_terminator()) {
    for (Value result : op.getResults())
      see(shapes[result]);
    for (NamedAttribute attribute : op.getAttrs())
      if (auto dims = llvm::dyn_cast<ArrayAttr>(attribute.getValue()); dims && nn::isDimsAttr(dims))
        see(nn::dimsFromAttr(dims));
  }
  return symbols;
}

/// A module whose @main is one call of the group. A last argument that nobody reads has one dim for each symbol, so that
/// all are bound.
OwningOpRef<ModuleOp> isolate(GroupOp group, const nn::SymbolicShapes &shapes) {
  MLIRContext *context = group.getContext();
  OpBuilder builder(context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(group.getLoc());
  builder.setInsertionPointToEnd(module->getBody());
  DimShape symbols;
  for (const std::string &symbol : symbolsOf(group, shapes))
    symbols.push_back(Dim::symbol(symbol));
  SmallVector<Type> arguments(group.getInputs().getTypes());
  arguments.push_back(RankedTensorType::get(SmallVector<int64_t>(symbols.size(), ShapedType::kDynamic),
                                            builder.getI1Type()));
  auto type = builder.getFunctionType(arguments, group.getResultTypes());
  auto function = func::FuncOp::create(builder, group.getLoc(), "main", type);
  Block *block = function.addEntryBlock();
  for (auto [index, input] : llvm::enumerate(group.getInputs()))
    function.setArgAttr(index, nn::dimsAttr, nn::dimsToAttr(context, shapes[input]));
  function.setArgAttr(static_cast<unsigned>(arguments.size() - 1), nn::dimsAttr, nn::dimsToAttr(context, symbols));
  builder.setInsertionPointToEnd(block);
  auto copy = llvm::cast<GroupOp>(builder.clone(*group));
  copy->setOperands(block->getArguments().drop_back());
  func::ReturnOp::create(builder, group.getLoc(), copy.getResults());
  return module;
}

/// Mixed signs and magnitudes; integers small, so that they can be indices.
Tensor randomTensor(DType type, Shape shape, std::mt19937 &random) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> kind(0, 15), integer(0, 3);
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  for (float &value : values) {
    if (!isFloat(type)) {
      value = static_cast<float>(type == DType::Bool ? integer(random) & 1 : integer(random));
      continue;
    }
    int which = kind(random);
    value = normal(random) * (which == 0 ? 30.f : which == 1 ? 1e-3f : 1.f);
  }
  Tensor tensor = Tensor::of<float>(DType::F32, std::move(shape), values);
  return tensor.convertedTo(type);
}

class GroupCheck {
public:
  GroupCheck(GroupOp group, const nn::SymbolicShapes &shapes, const std::string &target)
      : group(group), module(isolate(group, shapes)), target(target),
        what(group.getPattern().str() + " at " + locationName(group.getLoc())) {}

  Status run(std::mt19937 &random) {
    auto entry = *module->getOps<func::FuncOp>().begin();
    auto plan = buildPlan(entry, {target, ""});
    if (!plan)
      return Error{plan.error().kind, what + ": " + plan.error().message};
    auto interpreter = Interpreter::create(entry, "");
    if (!interpreter)
      return interpreter.error();
    NamedTensors inputs = randomInputs(*plan, unequalSizes, random);
    auto expected = interpreter->run(inputs);
    if (!expected) {
      inputs = randomInputs(*plan, equalSizes, random);
      expected = interpreter->run(inputs);
    }
    if (!expected)
      return Error{expected.error().kind, what + ": " + expected.error().message};
    ExecutorOptions options;
    options.target = cuda::deviceCount() > 0 ? ExecutorOptions::Target::Cuda : ExecutorOptions::Target::Emulate;
    options.poison = true;
    auto executor = Executor::create(std::move(*plan), options);
    if (!executor)
      return Error{executor.error().kind, what + ": " + executor.error().message};
    auto actual = (*executor)->run(inputs);
    if (!actual)
      return Error{actual.error().kind, what + ": " + actual.error().message};
    for (const auto &[name, value] : *expected)
      if (Status status = compareOutput(name, actual->at(name), value); !status)
        return status;
    return {};
  }

private:
  static NamedTensors randomInputs(const ProgramPlan &plan, const Sizes &chosen, std::mt19937 &random) {
    NamedTensors inputs;
    SymbolValues sizes;
    for (const PortPlan &port : plan.inputs)
      for (const Dim &dim : port.shape)
        for (const std::string &symbol : dim.symbols())
          sizes[symbol] = llvm::StringRef(symbol).contains_insensitive("batch") ? chosen.batch : chosen.other;
    for (const PortPlan &port : plan.inputs) {
      Shape shape;
      for (const Dim &dim : port.shape)
        shape.push_back(*dim.evaluate(sizes));
      inputs[port.name] = randomTensor(port.type, std::move(shape), random);
    }
    return inputs;
  }

  Status compareOutput(const std::string &output, const Tensor &actual, const Tensor &expected) {
    auto difference = compare(actual, expected);
    if (!difference)
      return difference.error();
    if (difference->relativeL2 <= tolerance(actual.type()))
      return {};
    int64_t index = std::max<int64_t>(difference->worstIndex, 0);
    return Error{ErrorKind::AnswerIsNo,
                 fmt::format("{}: kernel and body differ in {} at element {}: {} instead of {} (relative L2 {:.3g})",
                             what, output, index, actual.toFloats()[index], expected.toFloats()[index],
                             difference->relativeL2)};
  }

  GroupOp group;
  OwningOpRef<ModuleOp> module;
  std::string target, what;
};
} // namespace

Status verifyGroups(func::FuncOp function, const std::string &target) {
  auto shapes = nn::SymbolicShapes::compute(function);
  if (failed(shapes))
    return badInput("shapes do not fit together");
  auto groups = llvm::to_vector(function.getOps<GroupOp>());
  Progress progress("verifying fusions", static_cast<int64_t>(groups.size()));
  std::mt19937 random(std::random_device{}());
  for (GroupOp group : groups) {
    progress.step(group.getPattern().str() + " " + locationName(group.getLoc()));
    if (Status status = GroupCheck(group, *shapes, target).run(random); !status)
      return status;
  }
  return {};
}

} // namespace fusion
