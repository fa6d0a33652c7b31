#include "codegen/BuildPlan.h"

#include "codegen/ChooseSchedule.h"
#include "codegen/OutputSlices.h"
#include "codegen/PlanBuilder.h"
#include "codegen/body/KernelSource.h"
#include "codegen/plan/Comments.h"
#include "codegen/schedule/Schedules.h"
#include "ir/base/BindSymbols.h"
#include "ir/base/Hash.h"
#include "ir/dialect/Mesh.h"
#include "ir/dialect/SymbolsOf.h"
#include "ir/dialect/Types.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace fusion {

PlanBuilder::PlanBuilder(func::FuncOp function, const PlanOptions &options, const TargetInfo &target,
                         const nn::SymbolicShapes &shapes, llvm::ArrayRef<View> arguments)
    : function(function), options(options), shapes(shapes),
      views(Views::compute(function, shapes, arguments)), target(target) {
  auto module = function->getParentOfType<ModuleOp>();
  plan.model = (module && module.getName() ? *module.getName() : function.getName()).str();
  plan.target = options.target;
  if (auto mesh = nn::meshOf(function); !mesh.empty()) {
    plan.axis = mesh.front().name;
    plan.ranks = mesh.front().ranks;
  }
}

Status PlanBuilder::build() {
  if (Status status = nn::checkSums(function); !status)
    return status;
  planArguments();
  for (Operation &op : function.getBody().front()) {
    if (llvm::isa<func::ReturnOp>(op))
      return planResults(&op);
    if (Status status = planOp(&op); !status)
      return status;
  }
  return badInput("function " + function.getName().str() + " returns nothing");
}

Status PlanBuilder::planOp(Operation *op) {
  if (nn::isStored(op) || llvm::isa<nn::DimConstantOp>(op))
    return {}; // planned when its buffer is needed
  if (!llvm::isa<GroupOp>(op) && !nn::isGraphOp(op))
    return badInput(describeOp(op) + ": not an op of this compiler");
  if (views.isView(op) || isOpTriviallyDead(op))
    return {};
  if (auto loop = llvm::dyn_cast<nn::LoopOp>(op))
    return planLoop(loop);
  const bool prepares = isPrepared(op);
  const auto kind = prepares ? BufferPlan::Kind::Prepared : BufferPlan::Kind::Temporary;
  llvm::SmallVector<BufferId> outputs;
  for (Value result : op->getResults()) {
    outputs.push_back(views.isInPlace(result)
                          ? buffers[views[result].base]
                          : buffers[result] = addBuffer(kind, result, locationName(op->getLoc())));
    if (prepares)
      prepared.insert(result);
  }
  auto group = llvm::dyn_cast<GroupOp>(op);
  const Region region = group ? Region::of(group) : Region::of(op);
  if (!prepares)
    return planRegion(region, outputs);
  steps = &plan.preparation;
  Status status = planRegion(region, outputs);
  steps = &plan.steps;
  return status;
}

static bool isOfRun(const std::string &symbol) { return symbol != rankSymbol; }

bool PlanBuilder::isPrepared(Operation *op) const {
  auto isKept = [&](Value operand) {
    const View &view = views[operand];
    return llvm::none_of(view.offset.symbols(), isOfRun) &&
           (nn::isStored(view.base) || prepared.contains(view.base));
  };
  auto isStatic = [&](Value result) {
    return llvm::all_of(shapes[result], [](const Dim &dim) { return dim.isStatic(); }) &&
           !views.isInPlace(result);
  };
  const bool sums = op->walk([](nn::AllReduceOp) { return WalkResult::interrupt(); }).wasInterrupted();
  return !sums && op->getNumOperands() > 0 && llvm::all_of(op->getOperands(), isKept) &&
         llvm::all_of(op->getResults(), isStatic) && llvm::none_of(nn::symbolsOf(op, shapes), isOfRun);
}

KernelContext PlanBuilder::contextOf(llvm::ArrayRef<View> inputs, llvm::ArrayRef<View> outputs) const {
  return {.shapes = shapes,
          .inputs = inputs,
          .target = target,
          .outputs = outputs,
          .mayLaunchEarly = !isInLoop,
          .schedules = options.schedules,
          .batchInvariant = options.batchInvariant};
}

/// Whether several ranks add up in it.
static bool addsOverRanks(const Region &region) {
  return region.ranks() > 1 && llvm::any_of(region.ops, llvm::IsaPred<nn::AllReduceOp>);
}

Status PlanBuilder::planRegion(const Region &region, llvm::ArrayRef<BufferId> outputs) {
  llvm::SmallVector<View> inputs = inputViews(region, views), targets = outputViews(region, views);
  KernelContext context = contextOf(inputs, targets);
  if (auto group = llvm::dyn_cast<GroupOp>(region.anchor); group && addsOverRanks(region)) {
    chooseScattering();
    context.scattered = scatteredOutputs(group);
    context.gathersFullSizeRows = *gathersFullSizeRows;
  }
  auto planned = chooseSchedule(region, context);
  if (!planned)
    return planned.error();
  const bool isThere = planned->updatedInput && targets[0].base == inputs[*planned->updatedInput].base;
  if (planned->updatedInput && !isThere)
    if (Status status = planCopy(region.inputs[*planned->updatedInput], inputs[*planned->updatedInput],
                                 outputs[0], region.anchor);
        !status)
      return status;
  return emit(region, context, *planned, outputs);
}

static Region regionOfCopy(Value value, Operation *anchor) {
  Region region;
  region.inputs = {value};
  region.outputs = {value};
  region.anchor = anchor;
  return region;
}

Result<Alternative> PlanBuilder::oneCopy(Value value, const View &view, BufferId to, Operation *anchor) {
  const Region region = regionOfCopy(value, anchor);
  const KernelContext context = contextOf(view, {});
  auto planned = pointwiseSchedule().plan(region, context);
  return planned ? oneLaunch(region, context, planned->emit, to) : Result<Alternative>(planned.error());
}

Status PlanBuilder::planCopy(Value value, const View &view, BufferId to, Operation *anchor) {
  const Region region = regionOfCopy(value, anchor);
  const KernelContext context = contextOf(view, {});
  auto planned = pointwiseSchedule().plan(region, context);
  return planned ? emit(region, context, *planned, to) : planned.error();
}

Status PlanBuilder::emit(const Region &region, const KernelContext &context, const SchedulePlan &planned,
                         llvm::ArrayRef<BufferId> outputs) {
  for (const View &view : context.inputs) // what computes them comes before
    if (auto buffer = bufferOf(view.base); !buffer)
      return buffer.error();
  const llvm::SmallVector<bool> independent = independentInputs(context.inputs, {});
  KernelContext known = context;
  known.independent = independent;
  Step step;
  const std::vector<PlannedAlternative> all = planned.alternatives(region);
  if (all.front().algorithm) {
    Result<Step> sum = sumOverRanks(region, known, all, outputs);
    if (!sum)
      return sum.error();
    step = std::move(*sum);
  } else {
    std::vector<KernelEmitter> emitters;
    Result<std::vector<Alternative>> alternatives = alternativesOf(region, known, all, outputs, &emitters);
    if (!alternatives)
      return alternatives.error();
    step.alternatives = std::move(*alternatives);
    if (*all.front().variant != 0)
      step.choice = Step::Choice::Measurement;
    if (planned.multiplies &&
        !context.batchInvariant) // the library chooses by the number of rows how it adds up
      if (Status status = addLibraryVariant(step, region, known, planned.multiplied, outputs); !status)
        return status;
    linkNorm(region, known, outputs, step);
    if (planned.multiplies && steps == &plan.steps && !isInLoop)
      lastMatmul = {steps->size(),
                    region,
                    SmallVector<View>(context.inputs),
                    SmallVector<View>(context.outputs),
                    independent,
                    std::move(emitters),
                    SmallVector<BufferId>(outputs)};
  }
  steps->push_back(std::move(step));
  return {};
}

Result<Alternative> PlanBuilder::oneLaunch(const Region &region, const KernelContext &context,
                                           const KernelEmitter &emitter, llvm::ArrayRef<BufferId> outputs) {
  KernelDraft draft = emitter(context);
  KernelLaunch launch;
  for (const KernelDraft::Argument &argument : draft.arguments) {
    switch (argument.kind) {
    case KernelDraft::Argument::Kind::Input: {
      auto buffer = bufferOf(context.inputs[argument.index].base);
      if (!buffer)
        return buffer.error();
      launch.arguments.push_back(PointerArgument{*buffer});
      break;
    }
    case KernelDraft::Argument::Kind::Output:
      launch.arguments.push_back(PointerArgument{outputs[argument.index], 0, /*written=*/true});
      break;
    case KernelDraft::Argument::Kind::Size:
      launch.arguments.push_back(ScalarArgument{argument.value});
      break;
    case KernelDraft::Argument::Kind::TensorMap: {
      auto buffer = bufferOf(context.inputs[argument.index].base);
      if (!buffer)
        return buffer.error();
      TensorMapArgument map = argument.map;
      map.buffer = *buffer;
      launch.arguments.push_back(std::move(map));
      break;
    }
    case KernelDraft::Argument::Kind::Scratch:
      launch.arguments.push_back(PointerArgument{scratchBuffer(region, argument.value), 0, argument.written});
      break;
    case KernelDraft::Argument::Kind::Squares:
      plan.buffers[*squares].shape = {argument.value};
      launch.arguments.push_back(PointerArgument{*squares, 0, argument.written});
      break;
    case KernelDraft::Argument::Kind::Exchange:
      launch.arguments.push_back(ExchangeArgument());
      break;
    }
  }
  for (auto [number, output] : llvm::enumerate(draft.arguments))
    if (output.kind == KernelDraft::Argument::Kind::Output && output.index == 0)
      for (auto [other, input] : llvm::enumerate(draft.arguments))
        if (input.kind == KernelDraft::Argument::Kind::Input &&
            llvm::is_contained(draft.replaceable, input.index))
          std::get<PointerArgument>(launch.arguments[number])
              .mayReplace.push_back(static_cast<uint32_t>(other));
  launch.gridX = draft.gridX;
  launch.gridY = draft.gridY;
  launch.gridZ = draft.gridZ;
  launch.flops = draft.flops;
  launch.sumsOver = region.summedAxis();
  describe(launch, region, context, draft);
  launch.kernel = shareKernel(std::move(draft.kernel));
  if (draft.launchesEarly)
    early.insert(launch.kernel);
  return Alternative{{}, {std::move(launch)}, {}, draft.collective};
}

llvm::SmallVector<bool> PlanBuilder::independentInputs(llvm::ArrayRef<View> inputs,
                                                       llvm::ArrayRef<KernelLaunch> before) const {
  llvm::SmallVector<bool> independent;
  for (const View &view : inputs)
    independent.push_back(!mayStillBeWritten(buffers.at(view.base), before));
  return independent;
}

bool PlanBuilder::mayStillBeWritten(BufferId buffer, llvm::ArrayRef<KernelLaunch> before) const {
  if (plan.buffers[buffer].kind == BufferPlan::Kind::Weight)
    return false;
  if (isInLoop)
    return true; // by a later kernel, in the round before
  auto writesIt = [&](const KernelArgument &argument) {
    const BufferId *its = fusion::bufferOf(argument);
    return its && *its == buffer && isWritten(argument);
  };
  // Whether one of them writes it, backwards up to one that lets the next start only once it has waited: what
  // was before that has finished. `reached`: there is none.
  auto written = [&](llvm::ArrayRef<KernelLaunch> launches, bool &reached) {
    for (const KernelLaunch &launch : llvm::reverse(launches)) {
      if (llvm::any_of(launch.arguments, writesIt))
        return true;
      if (!early.contains(launch.kernel))
        return false;
    }
    reached = true;
    return false;
  };
  bool reached = false;
  if (written(before, reached))
    return true;
  for (const Step &step : llvm::reverse(*steps)) {
    if (!std::exchange(reached, false))
      return false;
    for (const Alternative &alternative : step.alternatives) {
      if (written(alternative.launches, reached))
        return true;
      reached |= alternative.link == Alternative::Link::Between || // then it may not be launched
                 (alternative.linked && early.contains(alternative.linked->kernel));
    }
  }
  return false;
}

/// Kernels that differ in comments only are one. Of several with one name all but the first get a hash after
/// it.
uint32_t PlanBuilder::shareKernel(KernelPlan kernel) {
  const std::string key = kernel.isLibraryCall ? kernel.name + " " + kernel.parameters.front().type
                                               : withoutComments(kernel.source);
  auto [place, isNew] = kernels.try_emplace(key, static_cast<uint32_t>(plan.kernels.size()));
  if (isNew) {
    const bool isTaken =
        llvm::any_of(plan.kernels, [&](const KernelPlan &other) { return other.name == kernel.name; });
    if (isTaken && !kernel.isLibraryCall)
      body::renameKernel(kernel, kernel.name + "_" + contentHash(key).substr(0, 6));
    plan.kernels.push_back(std::move(kernel));
  } else {
    KernelPlan &shared = plan.kernels[place->second];
    shared.dynamicSharedBytes = std::max(shared.dynamicSharedBytes, kernel.dynamicSharedBytes);
  }
  return place->second;
}

/// Bytes that an input costs: a gathered table only what is taken from it.
static Dim bytesOf(Value input, const View &view, const nn::SymbolicShapes &shapes) {
  Dim elements = 1;
  for (size_t i = 0; i < view.shape.size(); ++i)
    if (!(view.strides[i] == Dim(0)))
      elements = elements * view.shape[i];
  if (input.hasOneUse())
    if (Operation *user = *input.getUsers().begin();
        llvm::isa<nn::GatherOp, nn::GatherElementsOp, nn::GatherNdOp>(user) && user->getOperand(0) == input)
      elements = product(shapes[user->getResult(0)]);
  if (isPacked(view))
    return elements.ceilDiv(2);
  return elements * Dim(static_cast<int64_t>(byteSize(dtype(input))));
}

void PlanBuilder::describe(KernelLaunch &launch, const Region &region, const KernelContext &context,
                           const KernelDraft &draft) const {
  launch.location = locationName(region.anchor->getLoc());
  launch.fusion = region.pattern;
  for (Operation *op : region.ops)
    if (!llvm::isa<nn::ConstantOp, nn::DimConstantOp>(op) || region.ops.size() == 1)
      launch.ops.push_back(op->getName().getStringRef().str());
  for (const KernelDraft::Argument &argument : draft.arguments)
    if (argument.kind == KernelDraft::Argument::Kind::Input ||
        argument.kind == KernelDraft::Argument::Kind::TensorMap)
      launch.bytesRead =
          launch.bytesRead + bytesOf(region.inputs[argument.index], context.inputs[argument.index], shapes);
  // A copy has no op.
  auto scatter = llvm::dyn_cast_if_present<nn::ScatterNdOp>(region.ops.empty() ? nullptr : region.ops.back());
  if (scatter)
    launch.bytesWritten =
        product(shapes[scatter.getUpdates()]) * Dim(static_cast<int64_t>(byteSize(dtype(scatter))));
  else
    for (const OutputSlice &slice : outputSlicesOf(region, context))
      launch.bytesWritten = launch.bytesWritten + product(shapes[slice.value]) *
                                                      Dim(static_cast<int64_t>(byteSize(dtype(slice.value))));
}

/// Symbolic shapes, or what the failing op said.
static Result<nn::SymbolicShapes> shapesOf(func::FuncOp function) {
  std::string message;
  ScopedDiagnosticHandler handler(function.getContext(), [&](Diagnostic &diagnostic) {
    if (message.empty())
      message = locationName(diagnostic.getLocation()) + ": " + diagnostic.str();
    return success();
  });
  auto shapes = nn::SymbolicShapes::compute(function);
  if (failed(shapes))
    return badInput(message);
  return std::move(*shapes);
}

Result<TargetInfo> targetOf(const PlanOptions &options) {
  return options.device ? *options.device : TargetInfo::find(options.target);
}

Result<ProgramPlan> buildPlan(func::FuncOp function, const PlanOptions &options) {
  auto target = targetOf(options);
  if (!target)
    return target.error();
  auto shapes = shapesOf(function);
  if (!shapes)
    return shapes.error();
  PlanBuilder builder(function, options, *target, *shapes);
  if (Status status = builder.build(); !status)
    return status.error();
  ProgramPlan plan = builder.takePlan();
  if (Status status = verify(plan); !status)
    return status.error();
  return plan;
}

} // namespace fusion
