// Links a matmul, the norm of its result, and the matmuls of that: the first one's kernel sums up squares,
// the last one's normalises the rows that it multiplies (swap_ab_norm.cuh).
#include "codegen/NormedMatmul.h"
#include "codegen/PlanBuilder.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

using Link = Alternative::Link;

/// Whether nothing but `op` reads the value, or views of it.
static bool isReadOnlyBy(Value value, Operation *op, const Views &views) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return user == op || (views.isView(user) && isReadOnlyBy(user->getResult(0), op, views));
  });
}

bool PlanBuilder::isResultOfLastMatmul(const View &rows, size_t step) const {
  if (!lastMatmul || lastMatmul->step + 1 != step || lastMatmul->region.outputs.size() != 1)
    return false;
  const Value made = lastMatmul->region.outputs.front();
  const View &target = lastMatmul->targets.front();
  return rows.base == target.base && rows.offset == Dim(0) && target.isContiguous() &&
         target.offset == Dim(0) && shapes[made].back() == rows.shape.back() &&
         product(shapes[made]) == product(rows.shape);
}

bool PlanBuilder::isNeverWritten(BufferId buffer) const {
  return llvm::none_of(plan.steps, [&](const Step &step) {
    return llvm::any_of(step.alternatives, [&](const Alternative &alternative) {
      return llvm::any_of(alternative.launches, [&](const KernelLaunch &launch) {
        return llvm::any_of(launch.arguments, [&](const KernelArgument &argument) {
          return isWritten(argument) && *fusion::bufferOf(argument) == buffer;
        });
      });
    });
  });
}

void PlanBuilder::linkNorm(const Region &region, const KernelContext &context,
                           llvm::ArrayRef<BufferId> outputs, Step &last) {
  if (context.batchInvariant || steps != &plan.steps || isInLoop)
    return;
  if (auto norm = normOfRows(region, context)) {
    if (isResultOfLastMatmul(norm->rows, steps->size()))
      lastNorm.emplace(LastNorm{steps->size(), region.anchor, *norm});
    return;
  }
  const bool isNormed = lastNorm && lastNorm->step + 1 == steps->size() &&
                        isReadOnlyBy(lastNorm->op->getResult(0), region.anchor, views);
  const auto made =
      NormedMatmul::of(region, context, isNormed ? std::optional(lastNorm->norm) : std::nullopt);
  if (!made || !isResultOfLastMatmul(made->rows(), isNormed ? lastNorm->step : steps->size()))
    return;
  Step &first = (*steps)[lastMatmul->step];
  if (llvm::any_of(first.alternatives, [](const Alternative &one) { return one.link != Link::None; }))
    return;
  KernelContext summing = contextOf(lastMatmul->inputs, lastMatmul->targets);
  summing.independent = lastMatmul->independent;
  summing.sumsSquares = true;
  if (llvm::none_of(lastMatmul->emitters,
                    [&](const KernelEmitter &emit) { return emit && emit(summing).sends; }))
    return;
  auto link = [](Alternative &alternative, Link place, std::optional<KernelLaunch> launch) {
    alternative.link = launch ? place : Link::None;
    alternative.linked = std::move(launch);
  };
  squares = addBuffer(BufferPlan::Kind::Temporary, made->operands().inputs.back(),
                      locationName(region.anchor->getLoc()) + ".squares");
  plan.buffers[*squares].type = DType::F32;

  KernelContext receiving = context;
  receiving.inputs = made->views();
  // The kernel before it is not the one that the context knows: only what no kernel writes is read early.
  SmallVector<bool> isRead;
  for (const View &view : made->views())
    isRead.push_back(isNeverWritten(*bufferOf(view.base)));
  receiving.independent = isRead;
  auto emit = [&](const KernelContext &own) { return made->emit(own); };
  for (Alternative &alternative : last.alternatives)
    if (variantName(alternative) == kernelVariant || alternative.variant.empty()) {
      receiving.when = alternative.when;
      link(alternative, Link::Last, linkedLaunch(made->operands(), receiving, emit, outputs));
    }
  if (llvm::none_of(last.alternatives, [](const Alternative &one) { return one.linked.has_value(); })) {
    plan.buffers.pop_back();
    return;
  }
  for (auto [alternative, emitter] : llvm::zip(first.alternatives, lastMatmul->emitters))
    link(alternative, Link::First, linkedLaunch(lastMatmul->region, summing, emitter, lastMatmul->outputs));
  if (isNormed)
    for (Alternative &alternative : (*steps)[lastNorm->step].alternatives)
      alternative.link = Link::Between;
}

} // namespace fusion
