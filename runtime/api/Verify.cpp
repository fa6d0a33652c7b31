#include "runtime/api/Verify.h"

#include "codegen/BuildPlan.h"
#include "ir/base/Progress.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"
#include "runtime/Executor.h"
#include "runtime/api/CapSizes.h"
#include "runtime/api/Isolate.h"
#include "runtime/api/Trial.h"
#include "runtime/cuda/Driver.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion {

namespace {
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

/// A module whose @main is one call of the group.
OwningOpRef<ModuleOp> isolated(GroupOp group, const nn::SymbolicShapes &shapes) {
  return isolate(group.getOperation(), llvm::to_vector(group.getInputs()), llvm::to_vector(ValueRange(group.getResults())),
                 shapes, symbolsOf(group, shapes));
}

class GroupCheck {
public:
  GroupCheck(GroupOp group, const nn::SymbolicShapes &shapes)
      : what(group.getPattern().str() + " at " + locationName(group.getLoc())), module(isolated(group, shapes)) {
    capSizes(*module->getOps<func::FuncOp>().begin());
  }

  /// Equal for groups that are the same kernel.
  std::string key() {
    std::string text;
    llvm::raw_string_ostream out(text);
    module->print(out);
    return text;
  }

  Status run(const std::string &target, const PlanEdit &edit, std::mt19937 &random) {
    auto entry = *module->getOps<func::FuncOp>().begin();
    auto plan = buildPlan(entry, {target, ""});
    if (!plan)
      return Error{plan.error().kind, what + ": " + plan.error().message};
    if (edit)
      edit(*plan);
    auto interpreter = Interpreter::create(entry, "");
    if (!interpreter)
      return interpreter.error();
    ExecutorOptions options;
    options.target = cuda::deviceCount() > 0 ? ExecutorOptions::Target::Cuda : ExecutorOptions::Target::Emulate;
    options.poison = true;
    const std::vector<TrialSizes> others = rangeSizes(*plan, interpreter->inputs());
    auto executor = Executor::create(std::move(*plan), options);
    if (!executor)
      return Error{executor.error().kind, what + ": " + executor.error().message};
    if (Status status = compareAt(unequalSizes, *interpreter, **executor, random); !status)
      return status;
    for (const TrialSizes &sizes : others)
      if (Status status = compareAt(sizes, *interpreter, **executor, random); !status)
        return status;
    return {};
  }

  std::string what;

private:
  /// Sizes for the ranges that the usual ones leave out, where few rows are enough: the plan's other kernels.
  static std::vector<TrialSizes> rangeSizes(const ProgramPlan &plan, llvm::ArrayRef<PortShape> ports) {
    std::vector<TrialSizes> chosen;
    for (const KernelLaunch &launch : plan.launches) {
      auto reaches = [&](const TrialSizes &sizes) {
        auto value = launch.when->size.evaluate(trialSymbols(ports, sizes));
        return value && launch.when->holds(*value);
      };
      if (!launch.when || reaches(unequalSizes) || llvm::any_of(chosen, reaches))
        continue;
      constexpr int64_t mostRows = 64;
      for (int64_t rows = launch.when->least; rows <= std::min(launch.when->most, mostRows); ++rows) {
        const TrialSizes ways[] = {{1, rows}, {rows, 1}, {rows, rows}};
        if (auto *way = llvm::find_if(ways, reaches); way != std::end(ways)) {
          chosen.push_back(*way);
          break;
        }
      }
    }
    return chosen;
  }

  Status compareAt(const TrialSizes &sizes, Interpreter &interpreter, Executor &executor, std::mt19937 &random) {
    NamedTensors inputs = randomInputs(interpreter.inputs(), sizes, {}, random);
    auto expected = interpreter.run(inputs);
    if (!expected) {
      inputs = randomInputs(interpreter.inputs(), equalSizes, {}, random);
      expected = interpreter.run(inputs);
    }
    if (!expected)
      return Error{expected.error().kind, what + ": " + expected.error().message};
    auto actual = executor.run(inputs);
    if (!actual)
      return Error{actual.error().kind, what + ": " + actual.error().message};
    for (const auto &[name, value] : *expected)
      if (Status status = compareOutput(name, actual->at(name), value, inputs); !status)
        return status;
    return {};
  }

  Status compareOutput(const std::string &output, const Tensor &actual, const Tensor &expected,
                       const NamedTensors &inputs) {
    auto difference = compare(actual, expected);
    if (!difference)
      return difference.error();
    if (difference->relativeL2 <= roundingTolerance(actual.type(), inputs))
      return {};
    int64_t index = std::max<int64_t>(difference->worstIndex, 0);
    return Error{ErrorKind::AnswerIsNo,
                 fmt::format("{}: kernel and body differ in {} at element {}: {} instead of {} (relative L2 {:.3g})",
                             what, output, index, actual.toFloats()[index], expected.toFloats()[index],
                             difference->relativeL2)};
  }

  OwningOpRef<ModuleOp> module;
};
} // namespace

Status verifyGroups(func::FuncOp function, const std::string &target, const PlanEdit &edit) {
  auto shapes = nn::SymbolicShapes::compute(function);
  if (failed(shapes))
    return badInput("shapes do not fit together");
  std::vector<GroupCheck> checks;
  std::set<std::string> seen;
  for (GroupOp group : function.getOps<GroupOp>())
    if (GroupCheck check(group, *shapes); seen.insert(check.key()).second)
      checks.push_back(std::move(check));
  Progress progress("verifying fusions", static_cast<int64_t>(checks.size()));
  std::mt19937 random(std::random_device{}());
  for (GroupCheck &check : checks) {
    progress.step(check.what);
    if (Status status = check.run(target, edit, random); !status)
      return status;
  }
  return {};
}

} // namespace fusion
