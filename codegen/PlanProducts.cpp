// The library's way of matrix products beside that of our kernels.
#include "codegen/KernelWriter.h"
#include "codegen/LibraryProducts.h"
#include "codegen/PlanBuilder.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

static KernelPlan productKernel(const LibraryProduct &call) {
  using Kind = KernelPlan::Parameter::Kind;
  nn::MatmulOp op = call.op;
  const KernelPlan::Product product{dtype(op.getA()), dtype(op.getB()), dtype(op.getY()), call.a.columns, call.b.columns};
  KernelPlan kernel;
  kernel.schedule = "matmul";
  kernel.isLibraryCall = true;
  kernel.product = product;
  auto pointer = [&](DType type, bool written, const char *name) {
    kernel.parameters.push_back({Kind::Pointer, (written ? "" : "const ") + sourceType(type).str() + " *", name});
  };
  pointer(product.a, false, "a");
  pointer(product.b, false, "b");
  pointer(product.c, true, "c");
  for (const char *name : {"m", "n", "k", "count", "lineA", "lineB", "lineC", "stepA", "stepB", "stepC"})
    kernel.parameters.push_back({Kind::Int64, "i64", name});
  auto typeName = [](DType type) { return std::string(name(type)); };
  kernel.name = "library_matmul_" + typeName(product.a) + "_" + typeName(product.b) + "_" + typeName(product.c) + "_" +
                (product.columnsOfA ? "columns_" : "rows_") + (product.columnsOfB ? "columns" : "rows");
  return kernel;
}

Status PlanBuilder::callProducts(const Region &region, const KernelContext &context, const LibraryProducts &products,
                                 llvm::ArrayRef<BufferId> outputs) {
  for (const LibraryProduct &call : products.calls) {
    nn::MatmulOp op = call.op;
    KernelPlan kernel = productKernel(call);
    KernelLaunch launch;
    launch.arguments.resize(3);
    auto operand = [&](size_t index, const LibraryOperand &matrix, DType type) -> Status {
      auto buffer = bufferOf(context.inputs[matrix.input].base);
      if (!buffer)
        return buffer.error();
      launch.arguments[index].buffer = *buffer;
      launch.arguments[index].byteOffset = matrix.offset * Dim(static_cast<int64_t>(byteSize(type)));
      return {};
    };
    if (Status status = operand(0, call.a, kernel.product->a); !status)
      return status;
    if (Status status = operand(1, call.b, kernel.product->b); !status)
      return status;
    const BufferId to = call.output ? outputs[*call.output]
                                    : addBuffer(BufferPlan::Kind::Temporary, op.getY(), locationName(op.getLoc()));
    buffers[op.getY()] = to;
    launch.arguments[2].buffer = to;
    launch.arguments[2].written = true;
    for (const Dim &number : {call.m, call.n, call.k, call.count, call.a.line, call.b.line, call.n, call.a.step, call.b.step,
                              call.m * call.n}) {
      launch.arguments.emplace_back();
      launch.arguments.back().value = number;
    }
    launch.location = locationName(op.getLoc());
    launch.fusion = region.pattern;
    launch.ops = {op->getName().getStringRef().str()};
    auto bytes = [&](const Dim &elements, DType type) { return elements * Dim(static_cast<int64_t>(byteSize(type))); };
    launch.bytesRead = bytes(call.count * call.m * call.k, kernel.product->a) +
                       bytes(call.b.step == Dim(0) ? call.k * call.n : call.count * call.k * call.n, kernel.product->b);
    launch.bytesWritten = bytes(call.count * call.m * call.n, kernel.product->c);
    launch.flops = call.count * call.m * call.n * call.k * Dim(2);
    launch.kernel = shareKernel(std::move(kernel));
    plan.launches.push_back(std::move(launch));
  }
  return {};
}

Status PlanBuilder::emitProducts(const Region &region, const KernelContext &context, llvm::ArrayRef<BufferId> outputs) {
  auto split = splitProducts(region, context);
  auto *products = std::get_if<LibraryProducts>(&split);
  const bool hasRanges = products && llvm::any_of(products->rests, [&](const Rest &rest) {
    KernelContext behind = context;
    behind.inputs = rest.inputs;
    behind.outputs = rest.outputs;
    return !rest.schedule->ranges(rest.region, behind).empty();
  });
  if (!products || hasRanges)
    return {};
  const size_t begin = lastPlanned, library = plan.launches.size();
  if (Status status = callProducts(region, context, *products, outputs); !status)
    return status;
  for (const Rest &rest : products->rests)
    if (Status status = emitRest(rest, context, outputs); !status)
      return status;
  for (size_t i = begin; i < plan.launches.size(); ++i) {
    plan.launches[i].way = i < library ? ProductWay::Kernel : ProductWay::Library;
    if (i >= library && !products->rows.size.constant())
      plan.launches[i].when = products->rows;
  }
  return {};
}

} // namespace fusion
