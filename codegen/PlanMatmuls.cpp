// Matmuls by cuBLASLt, as an alternative to our kernels.
#include "codegen/body/Printer.h"
#include "codegen/ChooseSchedule.h"
#include "codegen/LibraryMatmuls.h"
#include "codegen/PlanBuilder.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

static KernelPlan matmulKernel(const MatmulCall &call) {
  using Kind = KernelPlan::Parameter::Kind;
  nn::MatmulOp op = call.op;
  const LibraryMatmul matmul{dtype(op.getA()), dtype(op.getB()), dtype(op.getY()), call.a.columnMajor,
                             call.b.columnMajor};
  KernelPlan kernel;
  kernel.schedule = "matmul";
  kernel.isLibraryCall = true;
  kernel.matmul = matmul;
  auto pointer = [&](DType type, bool written, const char *name) {
    kernel.parameters.push_back(
        {Kind::Pointer, (written ? "" : "const ") + body::spelling(type) + " *", name});
  };
  pointer(matmul.a, false, "a");
  pointer(matmul.b, false, "b");
  pointer(matmul.c, true, "c");
  for (const char *name : {"m", "n", "k", "batch", "lda", "ldb", "ldc", "strideA", "strideB", "strideC"})
    kernel.parameters.push_back({Kind::Scalar, "i64", name});
  auto typeName = [](DType type) { return std::string(name(type)); };
  auto layout = [](bool columnMajor) { return columnMajor ? "columns" : "rows"; };
  kernel.name = "library_matmul_" + typeName(matmul.a) + "_" + typeName(matmul.b) + "_" + typeName(matmul.c) +
                "_" + layout(matmul.columnMajorA) + "_" + layout(matmul.columnMajorB);
  return kernel;
}

Result<std::vector<KernelLaunch>> PlanBuilder::callMatmuls(const Region &region, const KernelContext &context,
                                                           const LibraryMatmuls &split,
                                                           llvm::ArrayRef<BufferId> outputs) {
  std::vector<KernelLaunch> launches;
  for (const MatmulCall &call : split.calls) {
    nn::MatmulOp op = call.op;
    KernelPlan kernel = matmulKernel(call);
    KernelLaunch launch;
    for (auto [matrix, type] : {std::pair(&call.a, kernel.matmul->a), {&call.b, kernel.matmul->b}}) {
      auto buffer = bufferOf(context.inputs[matrix->input].base);
      if (!buffer)
        return buffer.error();
      launch.arguments.push_back(
          PointerArgument{*buffer, matrix->offset * Dim(static_cast<int64_t>(byteSize(type)))});
    }
    const BufferId to = call.output
                            ? outputs[*call.output]
                            : addBuffer(BufferPlan::Kind::Temporary, op.getY(), locationName(op.getLoc()));
    buffers[op.getY()] = to;
    launch.arguments.push_back(PointerArgument{to, 0, /*written=*/true});
    for (const Dim &number : {call.m, call.n, call.k, call.count, call.a.leading, call.b.leading, call.n,
                              call.a.batchStride, call.b.batchStride, call.m * call.n})
      launch.arguments.push_back(ScalarArgument{number});
    launch.location = locationName(op.getLoc());
    launch.fusion = region.pattern;
    launch.ops = {op->getName().getStringRef().str()};
    auto bytes = [&](const Dim &elements, DType type) {
      return elements * Dim(static_cast<int64_t>(byteSize(type)));
    };
    launch.bytesRead = bytes(call.count * call.m * call.k, kernel.matmul->a) +
                       bytes(call.b.batchStride == Dim(0) ? call.k * call.n : call.count * call.k * call.n,
                             kernel.matmul->b);
    launch.bytesWritten = bytes(call.count * call.m * call.n, kernel.matmul->c);
    launch.flops = call.count * call.m * call.n * call.k * Dim(2);
    launch.kernel = shareKernel(std::move(kernel));
    launches.push_back(std::move(launch));
  }
  return launches;
}

Result<Alternative> PlanBuilder::launchesOfLibrary(const Region &region, const KernelContext &context,
                                                   const LibraryMatmuls &split,
                                                   llvm::ArrayRef<BufferId> outputs) {
  Result<std::vector<KernelLaunch>> launches = callMatmuls(region, context, split, outputs);
  if (!launches)
    return launches.error();
  Alternative library{{}, std::move(*launches)};
  for (const RemainingOps &remaining : split.remaining) {
    Result<std::vector<Alternative>> after = remainingOps(remaining, context, outputs);
    if (!after)
      return after.error();
    llvm::move(after->front().launches, std::back_inserter(library.launches));
  }
  return library;
}

Result<Alternative> PlanBuilder::launchesOfLibrary(const Region &region, const KernelContext &context,
                                                   llvm::ArrayRef<BufferId> outputs) {
  auto split = splitMatmuls(region, context);
  if (auto *reason = std::get_if<std::string>(&split))
    return badInput(describeOp(region.anchor) + ": the library does not multiply it: " + *reason);
  return launchesOfLibrary(region, context, std::get<LibraryMatmuls>(split), outputs);
}

Status PlanBuilder::addLibraryVariant(Step &step, const Region &region, const KernelContext &context,
                                      const std::optional<Region> &multiplied,
                                      llvm::ArrayRef<BufferId> outputs) {
  auto found = splitMatmuls(region, context, multiplied);
  auto *split = std::get_if<LibraryMatmuls>(&found);
  if (!split || !remainsForAllSizes(*split, context))
    return {};
  Result<Alternative> library = launchesOfLibrary(region, context, *split, outputs);
  if (!library)
    return library.error();
  library->variant = libraryVariant;
  if (!split->rows.size.constant())
    library->when = {split->rows};
  for (Alternative &alternative : step.alternatives)
    if (alternative.variant.empty())
      alternative.variant = kernelVariant;
  step.alternatives.push_back(std::move(*library));
  step.choice = Step::Choice::Measurement;
  return {};
}

} // namespace fusion
