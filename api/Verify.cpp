#include "api/Verify.h"

#include "api/CapSizes.h"
#include "api/Isolate.h"
#include "api/KernelSides.h"
#include "api/NearPlaces.h"
#include "api/PlanTrials.h"
#include "api/Trial.h"
#include "codegen/BuildPlan.h"
#include "codegen/Views.h"
#include "ir/base/Progress.h"
#include "ir/dialect/Loop.h"
#include "ir/dialect/Mesh.h"
#include "ir/dialect/SymbolsOf.h"
#include "ir/dialect/Types.h"
#include "passes/fuse/Candidate.h"
#include "llvm/ADT/SetVector.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion {

namespace {
/// Operands of `op` that `value`, of its body, is computed from; all if it has none.
SmallVector<Value> operandsBehind(Operation *op, Value value) {
  SmallVector<Value> operands, left = {value};
  llvm::DenseSet<Value> seen;
  while (!left.empty()) {
    const Value next = left.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    if (auto argument = llvm::dyn_cast<BlockArgument>(next))
      operands.push_back(op->getOperand(argument.getArgNumber()));
    else
      llvm::append_range(left, next.getDefiningOp()->getOperands());
  }
  return operands;
}

nn::AllReduceOp sumIn(Operation *op) {
  nn::AllReduceOp found;
  op->walk([&](nn::AllReduceOp sum) { found = sum; });
  return found;
}

/// Of a group that sums over ranks: the ops that lead from the kernel whose result alone it sums up to it,
/// that kernel first; nothing if there is none such.
SmallVector<Operation *> feedingSum(GroupOp group, const Views &views) {
  const SmallVector<Value> addends = operandsBehind(group, sumIn(group).getX());
  SmallVector<Operation *> ops;
  for (Value value = addends.size() == 1 ? addends.front() : Value(); value;) {
    Operation *producer = value.getDefiningOp();
    if (!producer || !value.hasOneUse() || producer->getNumResults() != 1 || isBodyConstant(producer))
      return {};
    ops.insert(ops.begin(), producer);
    if (!views.isView(producer))
      return ops;
    value = producer->getOperand(0);
  }
  return {};
}

/// Whether it is such an op, or has one inside.
template <class Op>
bool holds(Operation *op) {
  return op->walk([](Op) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Of an op or group that multiplies what a norm makes of another one's result, in itself or before it: the
/// ops from that one on; nothing if it does not.
SmallVector<Operation *> feedingNorm(Operation *op, const Views &views) {
  if (!holds<nn::MatmulOp>(op))
    return {};
  for (Value operand : op->getOperands()) {
    SmallVector<Operation *> ops;
    bool isNormed = holds<nn::RmsNormOp>(op);
    for (Operation *producer = operand.getDefiningOp();
         producer && producer->getNumResults() == 1 && !isBodyConstant(producer);) {
      ops.insert(ops.begin(), producer);
      if (isNormed && holds<nn::MatmulOp>(producer))
        return ops;
      const bool isNorm = llvm::isa<nn::RmsNormOp>(producer) && !isNormed;
      if (!isNorm && !views.isView(producer))
        break;
      isNormed |= isNorm;
      producer = producer->getOperand(0).getDefiningOp();
    }
  }
  return {};
}

/// Runs a function on the ranks of `mesh`, which differ in the arguments that come from `values`.
void divide(func::FuncOp function, func::FuncOp mesh, ArrayRef<Value> inputs, ArrayRef<Value> values) {
  const std::optional<int64_t> ranks = nn::ranksOf(mesh);
  if (!ranks)
    return;
  function->setAttr(nn::meshAttr, mesh->getAttr(nn::meshAttr));
  for (auto [index, input] : llvm::enumerate(inputs)) {
    const int64_t dims = llvm::cast<RankedTensorType>(input.getType()).getRank();
    if (dims > 0 && llvm::is_contained(values, input))
      function.setArgAttr(static_cast<unsigned>(index), nn::shardAttr,
                          DenseI64ArrayAttr::get(function.getContext(), {dims - 1, *ranks}));
  }
}

/// A module whose @main is the ops alone, each fed by the one before. What kernels take from constants in
/// their text stays a constant. A sum over ranks has another addend on each rank.
OwningOpRef<ModuleOp> isolated(ArrayRef<Operation *> ops, const nn::SymbolicShapes &shapes) {
  llvm::SetVector<Value> inputs;
  std::set<std::string> symbols;
  for (Operation *op : ops) {
    symbols.merge(nn::symbolsOf(op, shapes));
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp();
          !llvm::is_contained(ops, producer) &&
          (llvm::isa<GroupOp>(op) || !producer || !isBodyConstant(producer)))
        inputs.insert(operand);
  }
  OwningOpRef<ModuleOp> module = isolate(
      ops, inputs.getArrayRef(), llvm::to_vector(ValueRange(ops.back()->getResults())), shapes, symbols);
  if (nn::AllReduceOp sum = sumIn(ops.back()))
    divide(*module->getOps<func::FuncOp>().begin(), ops.back()->getParentOfType<func::FuncOp>(),
           inputs.getArrayRef(),
           ops.size() > 1 ? llvm::to_vector(ops.front()->getOperands())
                          : operandsBehind(ops.back(), sum.getX()));
  return module;
}

using Ops = SmallVector<Operation *>;

/// The groups of a function, then the ops that are kernels of their own, then what may be linked: groups that
/// sum over ranks, or matmuls behind a norm, with what feeds them.
std::vector<Ops> kernelsOf(func::FuncOp function, const nn::SymbolicShapes &shapes) {
  const Views views = Views::compute(function, shapes);
  std::vector<Ops> kernels, singles, linked;
  auto link = [&](Ops feeding, Operation *op) {
    if (feeding.empty())
      return;
    feeding.push_back(op);
    linked.push_back(std::move(feeding));
  };
  const bool hasRanks = nn::ranksOf(function).value_or(1) > 1;
  for (Operation &op : function.getBody().front()) {
    if (auto group = llvm::dyn_cast<GroupOp>(op)) {
      kernels.push_back({&op});
      link(hasRanks && sumIn(&op) ? feedingSum(group, views) : Ops(), &op);
    } else if (op.getNumOperands() > 0 && nn::isGraphOp(&op) && !views.isView(&op) &&
               !llvm::isa<nn::AllReduceOp, nn::LoopOp>(op) && !isOpTriviallyDead(&op))
      singles.push_back({&op});
    link(feedingNorm(&op, views), &op);
  }
  llvm::append_range(kernels, singles);
  llvm::append_range(kernels, linked);
  return kernels;
}

std::string nameOf(Operation *op) {
  auto group = llvm::dyn_cast<GroupOp>(op);
  return (group ? group.getPattern().str() : op->getName().getStringRef().str()) + " at " +
         locationName(op->getLoc());
}
std::string nameOf(ArrayRef<Operation *> ops) {
  return ops.size() == 1 ? nameOf(ops.front()) : nameOf(ops.back()) + ", fed by " + nameOf(ops.front());
}

class KernelCheck {
public:
  KernelCheck(ArrayRef<Operation *> ops, const nn::SymbolicShapes &shapes)
      : what(nameOf(ops)), module(isolated(ops, shapes)), isGroup(llvm::isa<GroupOp>(ops.back())),
        isPair(ops.size() > 1), wide(llvm::cast<ModuleOp>(module.get()->clone())) {
    // Columns that are many still are, where that decides which kernel many rows get.
    if (!capSizes(entryOf(module)) || !capSizes(entryOf(wide), 1024))
      wide = {};
  }

  /// Equal for ops that are the same kernels.
  std::string key() {
    std::string text;
    llvm::raw_string_ostream out(text);
    module->print(out);
    if (wide)
      wide->print(out);
    return text;
  }

  /// What was too long to check is said in `skipped`.
  Status run(const PlanOptions &planning, const PlanEdit &edit, std::mt19937 &random,
             std::vector<std::string> &skipped) {
    if (Status status = check(entryOf(module), /*usual=*/true, planning, edit, random, skipped); !status)
      return status;
    return wide ? check(entryOf(wide), /*usual=*/false, planning, edit, random, skipped) : Status();
  }

  std::string what;

private:
  static func::FuncOp entryOf(OwningOpRef<ModuleOp> &module) {
    return *module->getOps<func::FuncOp>().begin();
  }

  /// At the usual sizes, and at sizes for each kernel that they leave out; without the usual ones only for
  /// more rows than the narrow module has kernels of their own for.
  Status check(func::FuncOp entry, bool usual, const PlanOptions &planning, const PlanEdit &edit,
               std::mt19937 &random, std::vector<std::string> &skipped) {
    auto plan = buildPlan(entry, planning);
    if (!plan)
      return Error{plan.error().kind, what + ": " + plan.error().message};
    if (isPair && !hasLinked(*plan))
      return {}; // then each by itself is all there is
    const NearPlaces near(entry);
    auto sides = KernelSides::create(near.function());
    if (!sides)
      return sides.error();
    if (double elements = elementsOf(sides->ports(), unequalSizes);
        (!isGroup || isPair) && elements > mostTrialElements) {
      skipped.push_back(fmt::format("{}: inputs of {:.0f} million elements", what, elements * 1e-6));
      return {};
    }
    const PlanTrials trials = planTrials(*plan, sides->ports(), usual);
    for (const std::string &kernel : trials.skipped)
      skipped.push_back(what + kernel);
    if (trials.sizes.empty())
      return {};
    if (edit)
      edit(*plan);
    if (Status status = sides->load(std::move(*plan)); !status)
      return Error{status.error().kind, what + ": " + status.error().message};
    for (const TrialSizes &sizes : trials.sizes)
      if (Status status = compareAt(near, sizes, trials.alike, *sides, random, skipped); !status)
        return status;
    return {};
  }

  static bool hasLinked(const ProgramPlan &plan) {
    return llvm::any_of(plan.steps, [](const Step &step) {
      return llvm::any_of(step.alternatives,
                          [](const Alternative &alternative) { return alternative.linked.has_value(); });
    });
  }

  Status compareAt(const NearPlaces &near, const TrialSizes &sizes, const TrialSizes &alike,
                   KernelSides &sides, std::mt19937 &random, std::vector<std::string> &skipped) {
    // Sizes that belong together only in the graph: all the same, or one of them one more than the others, as
    // offsets of n rows are n + 1.
    std::vector<SymbolValues> trials = {trialSymbols(sides.ports(), sizes),
                                        trialSymbols(sides.ports(), alike)};
    for (const auto &[symbol, size] : SymbolValues(trials[1])) {
      trials.push_back(trials[1]);
      trials.back()[symbol] = size + 1;
    }
    for (const TrialSizes &others : otherSizes)
      trials.push_back(trialSymbols(sides.ports(), others));
    NamedTensors inputs;
    auto run = [&](const SymbolValues &symbols) {
      inputs = sides.randomInputs(symbols, random);
      return sides.expected(inputs);
    };
    auto expected = run(trials[0]);
    for (size_t i = 1; !expected && i < trials.size(); ++i) {
      if (auto next = run(trials[i]); next || i == 1)
        expected = std::move(next);
    }
    if (!expected && !isGroup) {
      skipped.push_back(what + ": " + expected.error().message);
      return {};
    }
    if (!expected)
      return Error{expected.error().kind, what + ": " + expected.error().message};
    auto actual = sides.actual(inputs);
    if (!actual)
      return Error{actual.error().kind, what + ": " + actual.error().message};
    for (const auto &[name, value] : *expected)
      if (!near.isFurther(name) && !near.isAsLarge(name, actual->at(name), *expected, inputs))
        if (Status status = compareOutput(name, actual->at(name), value, inputs); !status)
          return status;
    return {};
  }

  Status compareOutput(const std::string &output, const Tensor &actual, const Tensor &expected,
                       const NamedTensors &inputs) {
    auto difference = compare(actual, expected);
    if (!difference)
      return difference.error();
    if (difference->relativeL2 <= roundingTolerance(actual.type(), inputs) ||
        (quantises(entryOf(module)) && differsByTies(actual, expected)))
      return {};
    int64_t index = std::max<int64_t>(difference->worstIndex, 0);
    return Error{
        ErrorKind::AnswerIsNo,
        fmt::format("{}: kernel and body differ in {} at element {}: {} instead of {} (relative L2 {:.3g})",
                    what, output, index, actual.toFloats()[index], expected.toFloats()[index],
                    difference->relativeL2)};
  }

  OwningOpRef<ModuleOp> module;
  bool isGroup, isPair;
  OwningOpRef<ModuleOp> wide;
};
} // namespace

Status verifyKernels(func::FuncOp function, const PlanOptions &planning, const PlanEdit &edit) {
  SmallVector<func::FuncOp> functions = {function};
  if (auto module = function->getParentOfType<ModuleOp>())
    for (auto other : module.getOps<func::FuncOp>())
      if (other != function && nn::isLoopBody(other))
        functions.push_back(other);
  std::vector<KernelCheck> checks;
  std::set<std::string> seen;
  for (func::FuncOp one : functions) {
    auto shapes = nn::SymbolicShapes::compute(one);
    if (failed(shapes))
      return badInput("shapes do not fit together");
    for (const Ops &ops : kernelsOf(one, *shapes))
      if (KernelCheck check(ops, *shapes); seen.insert(check.key()).second)
        checks.push_back(std::move(check));
  }
  std::vector<std::string> skipped;
  {
    Progress progress("verifying fusions", static_cast<int64_t>(checks.size()));
    std::mt19937 random(std::random_device{}());
    for (KernelCheck &check : checks) {
      progress.step(check.what);
      if (Status status = check.run(planning, edit, random, skipped); !status)
        return status;
    }
  }
  for (const std::string &line : skipped)
    if (!isQuiet())
      fmt::print(stderr, "not verified: {}\n", line);
  return {};
}

} // namespace fusion
