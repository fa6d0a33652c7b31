#include "api/KernelTrial.h"

#include "api/Isolate.h"
#include "api/KernelFiles.h"
#include "api/NearPlaces.h"
#include "api/Trial.h"
#include "codegen/BuildPlan.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"
#include "passes/fuse/Candidate.h"
#include "runtime/Executor.h"
#include "runtime/cuda/Driver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace fusion {

namespace {
/// Every symbol of the function's arguments.
std::set<std::string> symbolsOf(func::FuncOp function) {
  std::set<std::string> symbols;
  for (BlockArgument argument : function.getArguments())
    for (const Dim &dim : nn::argumentDims(function, argument.getArgNumber()))
      symbols.merge(dim.symbols());
  return symbols;
}

/// The subgraph of an op, the weights, constants and views that it reads, and what those read.
class Subgraph {
public:
  Subgraph(Operation *op, const Views &views) : views(views) {
    add(op);
    for (Operation *part : ops)
      for (Value operand : part->getOperands())
        if (Operation *producer = operand.getDefiningOp(); !producer || !llvm::is_contained(ops, producer))
          if (!llvm::is_contained(inputs, operand) && !(producer && isBodyConstant(producer)))
            inputs.push_back(operand);
  }

  SmallVector<Operation *> ops; ///< in order
  SmallVector<Value> inputs;    ///< what other kernels or the caller make

private:
  void add(Operation *op) {
    if (llvm::is_contained(ops, op))
      return;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp(); producer && costsNothing(producer))
        add(producer);
    ops.push_back(op);
  }

  bool costsNothing(Operation *op) const {
    return llvm::isa<nn::WeightOp>(op) || (llvm::isa<nn::ConstantOp>(op) && !isBodyConstant(op)) ||
           views.isView(op);
  }

  const Views &views;
};

/// Whether an argument of one plan is the same memory or number as one of another.
class SameArgument {
public:
  SameArgument(const ProgramPlan &left, const ProgramPlan &right) : left(left), right(right) {}

  bool operator()(const PointerArgument &a, const PointerArgument &b) const {
    return isSame(a.buffer, b.buffer) && a.byteOffset == b.byteOffset && a.written == b.written;
  }
  bool operator()(const ScalarArgument &a, const ScalarArgument &b) const { return a.value == b.value; }
  bool operator()(const TensorMapArgument &a, const TensorMapArgument &b) const {
    return isSame(a.buffer, b.buffer) && a.byteOffset == b.byteOffset && a.written == b.written &&
           a.type == b.type && a.shape == b.shape && a.strides == b.strides && a.box == b.box &&
           a.swizzle == b.swizzle;
  }
  bool operator()(const WorkspaceArgument &a, const WorkspaceArgument &b) const {
    return a.bytes == b.bytes && a.contents == b.contents;
  }
  /// Other kinds, and what is exchanged with other ranks.
  template <class A, class B> bool operator()(const A &, const B &) const { return false; }

private:
  bool isSame(BufferId a, BufferId b) const {
    return left.buffers[a].type == right.buffers[b].type && left.buffers[a].shape == right.buffers[b].shape;
  }
  const ProgramPlan &left, &right;
};

/// Whether the kernel of one launch can run in the place of the other's.
bool passTheSame(const ProgramPlan &planA, const KernelLaunch &a, const ProgramPlan &planB,
                 const KernelLaunch &b) {
  return a.gridX == b.gridX && a.gridY == b.gridY && a.gridZ == b.gridZ &&
         std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    [&](const KernelArgument &left, const KernelArgument &right) {
                      return std::visit(SameArgument(planA, planB), left, right);
                    });
}

class Trial {
public:
  Trial(const TrialGraph &graph, const KernelFile &file) : graph(graph), file(file) {}

  Result<KernelTrial> run(const SymbolValues &wanted) {
    edited = graph.plan;
    if (Status status = replaceKernels(edited, {&file, 1}); !status)
      return status.error();
    if (Status status = isolateStep(wanted); !status)
      return status.error();
    auto sizes = chooseSizes(wanted);
    if (!sizes)
      return sizes.error();
    return compareAndTime(*sizes);
  }

private:
  Error refuse(const std::string &reason) const {
    return badInput(fmt::format("kernel {} cannot be tried alone: {}", file.kernel, reason));
  }

  /// Finds a launch of the kernel, the op that it computes, and a program of that op only with the plan's own
  /// kernels: where one kernel is in several alternatives, that of the sizes.
  Status isolateStep(const SymbolValues &sizes) {
    func::FuncOp function = graph.function;
    auto analysed = nn::SymbolicShapes::compute(function);
    if (failed(analysed))
      return badInput("shapes do not fit together");
    const Views views = Views::compute(function, *analysed);
    bool found = false;
    for (const KernelLaunch *candidate : graph.plan.launches()) {
      if (graph.plan.kernels[candidate->kernel].name != file.kernel)
        continue;
      for (Operation &op : function.getBody().front().without_terminator())
        if (locationName(op.getLoc()) == candidate->location && !views.isView(&op)) {
          found = true;
          if (isolateOp(&op, views, *analysed, *candidate, sizes))
            return {};
        }
    }
    return refuse(found ? "it reads or writes memory that it has within the graph only"
                        : "no op of the graph is where it is launched");
  }

  bool isolateOp(Operation *op, const Views &views, const nn::SymbolicShapes &shapes,
                 const KernelLaunch &wanted, const SymbolValues &sizes) {
    Subgraph subgraph(op, views);
    module = isolate(subgraph.ops, subgraph.inputs, llvm::to_vector(ValueRange(op->getResults())), shapes,
                     symbolsOf(graph.function));
    auto made = buildPlan(entry(), graph.options);
    if (!made)
      return false;
    bool isFound = false;
    for (size_t step = 0; step < made->steps.size(); ++step)
      for (const Alternative &alternative : made->steps[step].alternatives)
        for (const KernelLaunch &own : alternative.launches) {
          const KernelPlan &theirs = graph.plan.kernels[wanted.kernel];
          if (made->kernels[own.kernel].schedule != theirs.schedule || own.ops != wanted.ops ||
              !passTheSame(graph.plan, wanted, *made, own))
            continue;
          const uint32_t index = own.kernel;
          when = alternative.when;
          alone = onlyThis(*made, step, alternative);
          aloneEdited = alone;
          alone.kernels[index] = theirs;
          aloneEdited.kernels[index] = edited.kernels[wanted.kernel];
          isFound = true;
          if (sizes.empty() || runsAt(sizes))
            return true;
        }
    return isFound;
  }

  /// The plan, whose step takes the alternative at all sizes, whatever is faster.
  static ProgramPlan onlyThis(ProgramPlan plan, size_t step, Alternative alternative) {
    alternative.when.clear();
    alternative.variant.clear();
    plan.steps[step] = {Step::Choice::Predicate, {std::move(alternative)}};
    return plan;
  }

  func::FuncOp entry() { return *module->getOps<func::FuncOp>().begin(); }

  bool runsAt(const SymbolValues &sizes) const {
    return llvm::all_of(when, [&](const SizeRange &range) {
      auto value = range.size.evaluate(sizes);
      return value && range.holds(*value);
    });
  }

  /// The wanted values if the kernel runs at them, or small ones at which it does.
  Result<SymbolValues> chooseSizes(const SymbolValues &wanted) {
    if (!wanted.empty() || symbolsOf(entry()).empty()) {
      return runsAt(wanted) ? Result<SymbolValues>(wanted)
                            : refuse("it runs for other sizes than those of the inputs");
    }
    auto ports = Interpreter::create(entry(), graph.options.baseFolder);
    if (!ports)
      return ports.error();
    for (int64_t rows = 5; rows <= 4096; rows = rows < 300 ? rows + 1 : rows * 2)
      for (const TrialSizes &sizes :
           {TrialSizes{2, rows}, TrialSizes{rows, 1}, TrialSizes{1, rows}, TrialSizes{1, 1}})
        if (SymbolValues symbols = trialSymbols(ports->inputs(), sizes); runsAt(symbols))
          return symbols;
    return refuse("no small sizes are found at which it runs");
  }

  Result<std::unique_ptr<Executor>> executorOf(const ProgramPlan &plan) const {
    ExecutorOptions options;
    options.target =
        cuda::deviceCount() > 0 ? ExecutorOptions::Target::Cuda : ExecutorOptions::Target::Emulate;
    if (!graph.cacheFolder.empty())
      options.cacheFolder = graph.cacheFolder;
    options.poison = true;
    return Executor::create(plan, options);
  }

  Result<KernelTrial> compareAndTime(const SymbolValues &sizes) {
    const NearPlaces near(entry());
    auto interpreter = Interpreter::create(near.function(), graph.options.baseFolder);
    if (!interpreter)
      return interpreter.error();
    auto original = executorOf(alone);
    if (!original)
      return original.error();
    auto changed = executorOf(aloneEdited);
    if (!changed)
      return badInput(changed.error().message);
    std::mt19937 random(std::random_device{}());
    NamedTensors inputs;
    // With outliers, and without: they hide what is added to a mean square.
    for (const TrialValues &values : {TrialValues{}, TrialValues{.magnitude = 1, .outlier = 1}}) {
      inputs = randomInputs(interpreter->inputs(), sizes, values, random);
      orderRows(entry(), interpreter->inputs(), inputs);
      auto expected = interpreter->run(inputs);
      if (!expected)
        return expected.error();
      if (Status status = agrees(**original, "the emitted kernel", near, inputs, *expected); !status)
        return status.error();
      if (Status status = agrees(**changed, file.path, near, inputs, *expected); !status)
        return status.error();
    }
    KernelTrial trial{file.kernel, file.path, (*changed)->device(), 0, 0};
    if (cuda::deviceCount() == 0)
      return trial;
    for (auto &[executor, time] :
         {std::pair(&*original, &trial.original), std::pair(&*changed, &trial.edited)}) {
      auto taken = timeOf(**executor, inputs);
      if (!taken)
        return taken.error();
      *time = *taken;
    }
    return trial;
  }

  Status agrees(Executor &executor, const std::string &what, const NearPlaces &near,
                const NamedTensors &inputs, const NamedTensors &expected) {
    auto actual = executor.run(inputs);
    if (actual)
      actual = executor.fetch(*actual);
    if (!actual)
      return badInput(fmt::format("kernel {} from {}: {}", file.kernel, what, actual.error().message));
    for (const auto &[name, value] : expected) {
      if (near.isFurther(name))
        continue;
      const Tensor &made = actual->at(name);
      auto difference = compare(made, value);
      if (!difference)
        return difference.error();
      const double allowed = roundingTolerance(value.type(), inputs);
      if (difference->relativeL2 <= allowed || (quantises(entry()) && differsByTies(made, value)) ||
          near.isAsLarge(name, made, expected, inputs))
        continue;
      const int64_t index = std::max<int64_t>(difference->worstIndex, 0);
      return Error{
          ErrorKind::AnswerIsNo,
          fmt::format("kernel {} from {} differs from its body in {} at element {} of {}: {} instead of {} "
                      "(relative L2 {:.3g}, allowed {:.3g})",
                      file.kernel, what, name, index, shapeString(value.shape()),
                      made.toFloats()[index], value.toFloats()[index], difference->relativeL2, allowed)};
    }
    return {};
  }

  /// Of the kernel's launches in a run, the median of several.
  Result<double> timeOf(Executor &executor, const NamedTensors &inputs) const {
    auto timings = executor.profile(inputs, /*iterations=*/31);
    if (!timings)
      return timings.error();
    double sum = 0;
    for (const LaunchTiming &timing : *timings)
      if (timing.kernel == file.kernel)
        sum += timing.microseconds;
    return sum;
  }

  const TrialGraph &graph;
  const KernelFile &file;
  ProgramPlan edited;
  OwningOpRef<ModuleOp> module;
  ProgramPlan alone, aloneEdited;
  Predicate when;
};
} // namespace

Result<KernelTrial> tryKernel(const TrialGraph &graph, const KernelFile &file, const SymbolValues &sizes) {
  return Trial(graph, file).run(sizes);
}

} // namespace fusion
