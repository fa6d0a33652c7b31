// The alternatives of a sum over ranks: kernels that exchange data themselves, and a call of the
// communication library with a kernel for the remaining ops.
#include "codegen/ChooseSchedule.h"
#include "codegen/LibrarySum.h"
#include "codegen/PlanBuilder.h"
#include "codegen/body/Printer.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

static Dim bytesOf(Value value, const nn::SymbolicShapes &shapes) {
  return product(shapes[value]) * Dim(static_cast<int64_t>(byteSize(dtype(value))));
}

Result<Step> PlanBuilder::sumOverRanks(const Region &region, const KernelContext &context,
                                       llvm::ArrayRef<PlannedAlternative> planned,
                                       llvm::ArrayRef<BufferId> outputs) {
  Step step;
  std::vector<KernelEmitter> emitters;
  step.choice =
      planned.front().algorithm == planned.back().algorithm ? Step::Choice::Predicate : Step::Choice::Ranks;
  while (!planned.empty()) {
    const CollectiveAlgorithm algorithm = *planned.front().algorithm;
    const auto ofAlgorithm =
        planned.take_while([&](const PlannedAlternative &one) { return one.algorithm == algorithm; });
    planned = planned.drop_front(ofAlgorithm.size());
    Result<std::vector<Alternative>> alternatives =
        algorithm == CollectiveAlgorithm::Library
            ? sumByLibrary(region, context, outputs)
            : alternativesOf(region, context, ofAlgorithm, outputs, &emitters);
    if (!alternatives)
      return alternatives.error();
    if (algorithm == CollectiveAlgorithm::TwoShot && alternatives->back().collective->gathersRows)
      for (auto [output, isScattered] : llvm::zip(outputs, context.scattered))
        plan.buffers[output].isScattered |= isScattered;
    llvm::move(*alternatives, std::back_inserter(step.alternatives));
  }
  if (step.choice == Step::Choice::Predicate)
    for (Alternative &alternative : step.alternatives)
      alternative.collective.reset();
  else
    linkSum(region, context, emitters, outputs, step);
  return step;
}

std::optional<KernelLaunch> PlanBuilder::linkedLaunch(const Region &region, const KernelContext &linked,
                                                      const KernelEmitter &emitter,
                                                      llvm::ArrayRef<BufferId> outputs) {
  if (!emitter)
    return std::nullopt;
  KernelDraft draft = emitter(linked);
  if (!draft.sends)
    return std::nullopt;
  Result<Alternative> made = oneLaunch(
      region, linked, [&](const KernelContext &) { return std::move(draft); }, outputs);
  return made ? std::optional(std::move(made->launches.front())) : std::nullopt;
}

void PlanBuilder::linkSum(const Region &region, const KernelContext &context,
                          llvm::ArrayRef<KernelEmitter> emitters, llvm::ArrayRef<BufferId> outputs,
                          Step &sum) {
  if (!lastMatmul || lastMatmul->step + 1 != steps->size() || steps != &plan.steps || isInLoop)
    return;
  const auto split = splitSum(region, context);
  const LibrarySum *parts = std::get_if<LibrarySum>(&split);
  if (!parts)
    return;
  const Value made = lastMatmul->region.outputs.front();
  const View &addend = parts->addend;
  if (lastMatmul->region.outputs.size() != 1 || !addend.isContiguous() || !(addend.offset == Dim(0)) ||
      addend.base != lastMatmul->targets.front().base || shapes[made].back() != addend.shape.back() ||
      product(shapes[made]) != product(addend.shape))
    return;
  KernelContext sending = contextOf(lastMatmul->inputs, lastMatmul->targets), receiving = context;
  sending.independent = lastMatmul->independent;
  sending.sendsTo = region.ranks();
  receiving.isSent = true;
  // Whatever else it reads was there before the matmul's kernel began.
  const SmallVector<bool> independent(region.inputs.size(), true);
  receiving.independent = independent;
  Step &matmul = (*steps)[lastMatmul->step];
  auto isLinked = [](const Alternative &alternative) { return alternative.linked.has_value(); };
  for (auto [alternative, emitter] : llvm::zip(matmul.alternatives, lastMatmul->emitters)) {
    alternative.linked = linkedLaunch(lastMatmul->region, sending, emitter, lastMatmul->outputs);
    if (alternative.linked) {
      alternative.link = Alternative::Link::First;
      alternative.linked->sumsOver = region.summedAxis();
    }
  }
  if (llvm::none_of(matmul.alternatives, isLinked))
    return;
  for (auto [alternative, emitter] : llvm::zip(sum.alternatives, emitters))
    if (alternative.collective->algorithm == CollectiveAlgorithm::OneShot) {
      alternative.linked = linkedLaunch(region, receiving, emitter, outputs);
      if (alternative.linked)
        alternative.link = Alternative::Link::Last;
    }
  if (llvm::none_of(sum.alternatives, isLinked))
    for (Alternative &alternative : matmul.alternatives) {
      alternative.linked.reset();
      alternative.link = Alternative::Link::None;
    }
}

Result<std::vector<Alternative>> PlanBuilder::sumByLibrary(const Region &region, const KernelContext &context,
                                                           llvm::ArrayRef<BufferId> outputs) {
  auto split = splitSum(region, context);
  if (auto *reason = std::get_if<std::string>(&split))
    return badInput(describeOp(region.anchor) + ": " + *reason);
  const LibrarySum &parts = std::get<LibrarySum>(split);
  nn::AllReduceOp op = parts.sum;
  auto from = bufferOf(parts.addend.base);
  if (!from)
    return from.error();
  Dim offset = parts.addend.offset * Dim(static_cast<int64_t>(byteSize(dtype(op.getX()))));
  std::vector<KernelLaunch> sum;
  if (!parts.addend.isContiguous()) {
    from = addBuffer(BufferPlan::Kind::Temporary, op.getX(), locationName(op.getLoc()));
    offset = 0;
    Result<Alternative> copy = oneCopy(op.getX(), parts.addend, *from, region.anchor);
    if (!copy)
      return copy.error();
    sum.push_back(std::move(copy->launches.front()));
  }
  const BufferId to = parts.output
                          ? outputs[*parts.output]
                          : addBuffer(BufferPlan::Kind::Temporary, op.getY(), locationName(op.getLoc()));
  buffers[op.getY()] = to;
  sum.push_back(callAllReduce(region, op, *from, offset, to));
  std::vector<Alternative> alternatives;
  if (parts.remaining) {
    Result<std::vector<Alternative>> remaining = remainingOps(*parts.remaining, context, outputs);
    if (!remaining)
      return remaining;
    alternatives = std::move(*remaining);
  } else {
    alternatives.emplace_back();
  }
  for (Alternative &alternative : alternatives) {
    alternative.launches.insert(alternative.launches.begin(), sum.begin(), sum.end());
    alternative.collective = {CollectiveAlgorithm::Library, bytesOf(op.getX(), shapes), 0};
  }
  return alternatives;
}

Result<std::vector<Alternative>> PlanBuilder::remainingOps(const RemainingOps &remaining,
                                                           const KernelContext &context,
                                                           llvm::ArrayRef<BufferId> outputs) {
  llvm::SmallVector<BufferId> targets;
  for (unsigned output : remaining.results)
    targets.push_back(outputs[output]);
  KernelContext after = context;
  after.inputs = remaining.inputs;
  after.outputs = remaining.outputs;
  after.independent = {}; // the library's kernels do not wait for their predecessors as ours do
  after.scattered = {};
  auto planned = remaining.schedule->plan(remaining.region, after);
  if (!planned)
    return planned.error();
  return alternativesOf(remaining.region, after, planned->alternatives(remaining.region), targets);
}

KernelLaunch PlanBuilder::callAllReduce(const Region &region, nn::AllReduceOp op, BufferId from,
                                        const Dim &offset, BufferId to) {
  using Kind = KernelPlan::Parameter::Kind;
  const std::string type = body::spelling(dtype(op.getX()));
  KernelPlan kernel;
  kernel.name = "all_reduce";
  kernel.schedule = "collective";
  kernel.isLibraryCall = true;
  kernel.parameters = {{Kind::Pointer, "const " + type + " *", "from"},
                       {Kind::Pointer, type + " *", "to"},
                       {Kind::Scalar, "i64", "elements"}};
  KernelLaunch launch;
  launch.arguments = {PointerArgument{from, offset}, PointerArgument{to, 0, /*written=*/true},
                      ScalarArgument{product(shapes[op.getX()])}};
  launch.location = locationName(op.getLoc());
  launch.fusion = region.pattern;
  launch.ops = {op->getName().getStringRef().str()};
  launch.sumsOver = op.getGroup().str();
  launch.bytesRead = launch.bytesWritten = bytesOf(op.getX(), shapes);
  launch.kernel = shareKernel(std::move(kernel));
  return launch;
}

} // namespace fusion
