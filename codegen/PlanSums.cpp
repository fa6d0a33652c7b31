// The ways to sum over ranks: a kernel each that exchanges data itself, and a call of the communication library with a kernel
// behind it.
#include "codegen/LibrarySum.h"
#include "codegen/KernelWriter.h"
#include "codegen/PlanBuilder.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

static Dim bytesOf(Value value, const nn::SymbolicShapes &shapes) {
  return product(shapes[value]) * Dim(static_cast<int64_t>(byteSize(dtype(value))));
}

Status PlanBuilder::emitForms(const Region &region, const KernelContext &context, const Schedule &schedule,
                              llvm::ArrayRef<CollectiveForm> forms, llvm::ArrayRef<BufferId> outputs) {
  for (CollectiveForm form : forms) {
    KernelContext inForm = context;
    inForm.form = form;
    if (auto group = llvm::dyn_cast<GroupOp>(region.anchor); group && form == CollectiveForm::TwoShot) {
      findOwners();
      inForm.ownerOnly = ownerOnlyOutputs(group);
      inForm.equalReplies = *equalReplies;
    }
    Status status = form == CollectiveForm::Library
                        ? emitLibrary(region, context, outputs, /*isOneOfSeveral=*/forms.size() > 1)
                        : emitRanges(region, inForm, schedule, outputs);
    if (!status)
      return status;
    if (!dry && form == CollectiveForm::TwoShot && plan.launches.back().collective->finishedRows)
      for (auto [output, isOwners] : llvm::zip(outputs, inForm.ownerOnly))
        plan.buffers[output].ownersRows |= isOwners;
  }
  return {};
}

Status PlanBuilder::emitLibrary(const Region &region, const KernelContext &context, llvm::ArrayRef<BufferId> outputs,
                                bool isOneOfSeveral) {
  auto split = splitSum(region, context);
  if (auto *reason = std::get_if<std::string>(&split))
    return badInput(describeOp(region.anchor) + ": " + *reason);
  const LibrarySum &parts = std::get<LibrarySum>(split);
  nn::AllReduceOp op = parts.sum;
  const size_t begin = plan.launches.size(), planned = lastPlanned;
  const int64_t counted = launches;
  auto from = bufferOf(parts.addend.base);
  if (!from)
    return from.error();
  Dim offset = parts.addend.offset * Dim(static_cast<int64_t>(byteSize(dtype(op.getX()))));
  if (!parts.addend.isContiguous()) {
    from = addBuffer(BufferPlan::Kind::Temporary, op.getX(), locationName(op.getLoc()));
    offset = 0;
    if (Status status = planCopy(op.getX(), parts.addend, *from, region.anchor); !status)
      return status;
  }
  const BufferId to = parts.output ? outputs[*parts.output]
                                   : addBuffer(BufferPlan::Kind::Temporary, op.getY(), locationName(op.getLoc()));
  buffers[op.getY()] = to;
  callLibrary(region, op, *from, offset, to);
  if (parts.rest)
    if (Status status = emitRest(*parts.rest, context, outputs); !status)
      return status;
  lastPlanned = planned;
  launches = counted;
  if (isOneOfSeveral)
    for (size_t i = begin; i < plan.launches.size(); ++i)
      plan.launches[i].collective = {CollectiveForm::Library, bytesOf(op.getX(), shapes), 0};
  return {};
}

Status PlanBuilder::emitRest(const Rest &rest, const KernelContext &context, llvm::ArrayRef<BufferId> outputs) {
  llvm::SmallVector<BufferId> targets;
  for (unsigned output : rest.results)
    targets.push_back(outputs[output]);
  KernelContext behind = context;
  behind.inputs = rest.inputs;
  behind.outputs = rest.outputs;
  behind.settled = {}; // the library's kernels wait as they please
  behind.form = std::nullopt;
  return emitRanges(rest.region, behind, *rest.schedule, targets);
}

void PlanBuilder::callLibrary(const Region &region, nn::AllReduceOp op, BufferId from, const Dim &offset, BufferId to) {
  using Kind = KernelPlan::Parameter::Kind;
  const std::string type = sourceType(dtype(op.getX())).str();
  KernelPlan kernel;
  kernel.name = "all_reduce";
  kernel.schedule = "collective";
  kernel.isLibraryCall = true;
  kernel.parameters = {{Kind::Pointer, "const " + type + " *", "from"}, {Kind::Pointer, type + " *", "to"}, {Kind::Int64, "i64", "elements"}};
  KernelLaunch launch;
  launch.arguments.resize(3);
  launch.arguments[0].buffer = from;
  launch.arguments[0].byteOffset = offset;
  launch.arguments[1].buffer = to;
  launch.arguments[1].written = true;
  launch.arguments[2].value = product(shapes[op.getX()]);
  launch.location = locationName(op.getLoc());
  launch.fusion = region.pattern;
  launch.ops = {op->getName().getStringRef().str()};
  launch.bytesRead = launch.bytesWritten = bytesOf(op.getX(), shapes);
  launch.kernel = shareKernel(std::move(kernel));
  plan.launches.push_back(std::move(launch));
}

} // namespace fusion
