// Matmuls that one kernel could combine, as two kernels: the matmuls side by side, then what combines them.
#include "codegen/schedule/MatmulProblem.h"
#include "codegen/schedule/Schedules.h"

using namespace mlir;

namespace fusion::matmul {

std::optional<std::pair<Region, Region>> combinedApart(const Region &region, const KernelContext &context,
                                                       const Problem &problem) {
  if (!problem.combined || !problem.prologue.empty() || !problem.b.decode || problem.routing)
    return std::nullopt;
  Region products = region, rest = region;
  products.outputs.clear();
  for (const Matmul &matmul : problem.matmuls)
    products.outputs.push_back(matmul.op.getY());
  products.ops = region.opsFor(products.outputs, {});
  rest.ops = region.opsFor(region.outputs, products.outputs);
  llvm::append_range(rest.inputs, products.outputs);
  KernelContext own = context, after = context;
  own.outputs = {};
  llvm::SmallVector<View> inputs(context.inputs);
  for (Value product : products.outputs)
    inputs.push_back(View::contiguous(product, context.shape(product)));
  after.inputs = inputs;
  after.independent = {};
  if (!matmulSchedule().plan(products, own) || !pointwiseSchedule().plan(rest, after))
    return std::nullopt;
  return std::pair(std::move(products), std::move(rest));
}

} // namespace fusion::matmul
