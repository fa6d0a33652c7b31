#include "codegen/BuildPlan.h"

#include "codegen/LibrarySum.h"
#include "codegen/Pieces.h"
#include "codegen/PlanBuilder.h"
#include "ir/dialect/Types.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace fusion {

std::string describeOp(Operation *op) {
  std::string name = op->getName().getStringRef().str();
  if (auto group = llvm::dyn_cast<GroupOp>(op))
    name += (" \"" + group.getPattern() + "\"").str();
  std::string where = locationName(op->getLoc());
  return where.empty() ? name : name + " at " + where;
}

/// 90 of "sm_90a".
static uint32_t archOf(StringRef target) {
  uint32_t arch = 0;
  StringRef digits = target;
  digits.consume_front("sm_");
  return digits.consumeInteger(10, arch) ? 80 : arch;
}

PlanBuilder::PlanBuilder(func::FuncOp function, const PlanOptions &options, const nn::SymbolicShapes &shapes,
                         bool dry)
    : function(function), options(options), shapes(shapes), views(Views::compute(function, shapes)),
      arch(archOf(options.target)), dry(dry) {
  auto module = function->getParentOfType<ModuleOp>();
  plan.model = (module && module.getName() ? *module.getName() : function.getName()).str();
  plan.target = options.target;
  if (auto ranks = function->getAttrOfType<IntegerAttr>(nn::ranksAttr))
    plan.ranks = ranks.getInt();
}

Status PlanBuilder::build() {
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
  if (llvm::isa<nn::ConstantOp, nn::WeightOp, nn::DimConstantOp>(op))
    return {}; // when somebody needs its buffer
  if (!llvm::isa<GroupOp>(op) && !llvm::isa_and_nonnull<nn::NNDialect>(op->getDialect()))
    return badInput(describeOp(op) + ": not an op of this compiler");
  if (views.isView(op) || isOpTriviallyDead(op))
    return {};
  llvm::SmallVector<BufferId> outputs;
  for (Value result : op->getResults())
    outputs.push_back(views.isInPlace(result)
                          ? buffers[views[result].base]
                          : buffers[result] =
                                addBuffer(BufferPlan::Kind::Temporary, result, locationName(op->getLoc())));
  auto group = llvm::dyn_cast<GroupOp>(op);
  return planRegion(group ? Region::of(group) : Region::of(op), outputs);
}

llvm::SmallVector<View> inputViews(const Region &region, const Views &views) {
  llvm::SmallVector<View> result;
  for (Value input : region.inputs) {
    auto argument = llvm::dyn_cast<BlockArgument>(input);
    auto group = argument ? llvm::dyn_cast<GroupOp>(argument.getOwner()->getParentOp()) : GroupOp();
    result.push_back(views[group ? group.getInputs()[argument.getArgNumber()] : input]);
  }
  return result;
}

llvm::SmallVector<View> outputViews(const Region &region, const Views &views) {
  auto group = llvm::dyn_cast<GroupOp>(region.anchor);
  llvm::SmallVector<View> result;
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    const bool yielded = group && Value(output).getParentBlock() == &group.getBody().front();
    result.push_back(views[yielded ? Value(group.getResult(static_cast<unsigned>(index))) : output]);
  }
  return result;
}

std::optional<std::string> scheduleRefusal(const Region &region, StringRef name,
                                           const nn::SymbolicShapes &shapes, const Views &views,
                                           uint32_t arch) {
  const Schedule *schedule = findSchedule(name);
  if (!schedule)
    return ("there is no schedule \"" + name + "\"").str();
  llvm::SmallVector<View> inputs = inputViews(region, views), outputs = outputViews(region, views);
  return schedule->refuses(region, {shapes, inputs, arch, nullptr, outputs});
}

Result<const Schedule *> PlanBuilder::chooseSchedule(const Region &region,
                                                     const KernelContext &context) const {
  if (auto group = llvm::dyn_cast<GroupOp>(region.anchor)) {
    const Schedule *schedule = findSchedule(group.getSchedule());
    if (!schedule)
      return badInput(describeOp(group) + ": there is no schedule \"" + group.getSchedule().str() + "\"");
    if (auto reason = schedule->refuses(region, context))
      return badInput(describeOp(group) + ": schedule " + schedule->name().str() + " refuses it: " + *reason);
    return schedule;
  }
  llvm::SmallVector<std::string> reasons;
  for (const Schedule *schedule : schedulesFor(region)) {
    auto reason = schedule->refuses(region, context);
    if (!reason)
      return schedule;
    reasons.push_back(schedule->name().str() + ": " + *reason);
  }
  return badInput(describeOp(region.anchor) + ": no kernel computes it (" + llvm::join(reasons, "; ") + ")");
}

Status PlanBuilder::planRegion(const Region &region, llvm::ArrayRef<BufferId> outputs) {
  llvm::SmallVector<View> inputs = inputViews(region, views), targets = outputViews(region, views);
  KernelContext context{shapes, inputs, arch, nullptr, targets};
  auto schedule = chooseSchedule(region, context);
  if (!schedule)
    return schedule.error();
  if (auto updated = (*schedule)->updatedInput(region))
    if (Status status = planCopy(region.inputs[*updated], inputs[*updated], outputs[0], region.anchor);
        !status)
      return status;
  return emit(region, context, **schedule, outputs);
}

Status PlanBuilder::planCopy(Value value, const View &view, BufferId target, Operation *anchor) {
  Region region;
  region.inputs = {value};
  region.outputs = {value};
  region.anchor = anchor;
  return emit(region, {shapes, view, arch}, *findSchedule("pointwise"), target);
}

Status PlanBuilder::emit(const Region &region, const KernelContext &context, const Schedule &schedule,
                         llvm::ArrayRef<BufferId> outputs) {
  ++launches;
  if (dry) {
    // What runs of several ways is one launch; the library's alone are two if there is something behind the sum.
    if (const auto forms = schedule.forms(region, context); !forms.empty() && forms.front() == CollectiveForm::Library)
      if (auto split = splitSum(region, context); std::holds_alternative<LibrarySum>(split))
        launches += std::get<LibrarySum>(split).rest ? 1 : 0;
    return emitOne(region, context, schedule, outputs);
  }
  for (const View &view : context.inputs) // what computes them comes before
    if (auto buffer = bufferOf(view.base); !buffer)
      return buffer.error();
  const llvm::SmallVector<bool> settled = settledInputs(context.inputs);
  KernelContext known = context;
  known.settled = settled;
  lastPlanned = plan.launches.size();
  if (const auto forms = schedule.forms(region, known); !forms.empty())
    return emitForms(region, known, schedule, forms, outputs);
  if (Status status = emitRanges(region, known, schedule, outputs); !status)
    return status;
  return schedule.multiplies() ? emitProducts(region, known, outputs) : Status();
}

Status PlanBuilder::emitRanges(const Region &region, const KernelContext &known, const Schedule &schedule,
                               llvm::ArrayRef<BufferId> outputs) {
  const std::vector<SizeRange> ranges = schedule.ranges(region, known);
  return ranges.empty() ? emitOne(region, known, schedule, outputs)
                        : emitRanges(region, known, schedule, ranges, outputs);
}

Status PlanBuilder::emitOne(const Region &region, const KernelContext &context, const Schedule &schedule,
                            llvm::ArrayRef<BufferId> outputs) {
  KernelDraft draft;
  if (!dry)
    draft = schedule.emit(region, context);
  KernelLaunch launch;
  for (const KernelDraft::Argument &argument : draft.arguments) {
    KernelLaunch::Argument bound;
    switch (argument.kind) {
    case KernelDraft::Argument::Kind::Input: {
      auto buffer = bufferOf(context.inputs[argument.index].base);
      if (!buffer)
        return buffer.error();
      bound.buffer = *buffer;
      break;
    }
    case KernelDraft::Argument::Kind::Output:
      bound.buffer = outputs[argument.index];
      bound.written = true;
      break;
    case KernelDraft::Argument::Kind::Size:
      bound.value = argument.value;
      break;
    case KernelDraft::Argument::Kind::Exchange:
      bound.exchange = true;
      break;
    }
    launch.arguments.push_back(std::move(bound));
  }
  for (auto [number, output] : llvm::enumerate(draft.arguments))
    if (output.kind == KernelDraft::Argument::Kind::Output && output.index == 0)
      for (auto [other, input] : llvm::enumerate(draft.arguments))
        if (input.kind == KernelDraft::Argument::Kind::Input && llvm::is_contained(draft.replaceable, input.index))
          launch.arguments[number].mayReplace.push_back(static_cast<uint32_t>(other));
  if (dry) // constants that need a launch are counted as they are when emitted
    for (const View &view : context.inputs)
      if (auto buffer = bufferOf(view.base); !buffer)
        return buffer.error();
  if (dry)
    return {};
  launch.gridX = draft.gridX;
  launch.gridY = draft.gridY;
  launch.gridZ = draft.gridZ;
  launch.flops = draft.flops;
  launch.collective = draft.collective;
  describe(launch, region, context, draft);
  launch.kernel = shareKernel(std::move(draft.kernel));
  plan.launches.push_back(std::move(launch));
  return {};
}

// The launch just before is one of several where its schedule has ranges or forms.
llvm::SmallVector<bool> PlanBuilder::settledInputs(llvm::ArrayRef<View> inputs) const {
  llvm::SmallVector<bool> settled;
  for (const View &view : inputs) {
    const BufferId buffer = buffers.at(view.base);
    const auto before = llvm::ArrayRef(plan.launches).drop_front(lastPlanned);
    settled.push_back(llvm::none_of(before, [&](const KernelLaunch &launch) {
      return llvm::any_of(launch.arguments, [&](const KernelLaunch::Argument &argument) {
        return argument.written && argument.buffer == buffer;
      });
    }));
  }
  return settled;
}

/// Kernels that differ in comments only have one name.
uint32_t PlanBuilder::shareKernel(KernelPlan kernel) {
  const std::string key = kernel.isLibraryCall ? kernel.name + " " + kernel.parameters.front().type : kernel.name;
  auto [place, isNew] = kernels.try_emplace(key, static_cast<uint32_t>(plan.kernels.size()));
  if (isNew) {
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
    if (argument.kind == KernelDraft::Argument::Kind::Input)
      launch.bytesRead =
          launch.bytesRead + bytesOf(region.inputs[argument.index], context.inputs[argument.index], shapes);
  for (const Piece &piece : piecesOf(region, context))
    launch.bytesWritten = launch.bytesWritten +
                          product(shapes[piece.value]) * Dim(static_cast<int64_t>(byteSize(dtype(piece.value))));
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

Result<ProgramPlan> buildPlan(func::FuncOp function, const PlanOptions &options) {
  auto shapes = shapesOf(function);
  if (!shapes)
    return shapes.error();
  PlanBuilder builder(function, options, *shapes, /*dry=*/false);
  if (Status status = builder.build(); !status)
    return status.error();
  ProgramPlan plan = builder.takePlan();
  if (Status status = verify(plan); !status)
    return status.error();
  return plan;
}

Result<int64_t> countLaunches(func::FuncOp function, const PlanOptions &options) {
  auto shapes = shapesOf(function);
  if (!shapes)
    return shapes.error();
  PlanBuilder builder(function, options, *shapes, /*dry=*/true);
  if (Status status = builder.build(); !status)
    return status.error();
  return builder.launchCount();
}

} // namespace fusion
