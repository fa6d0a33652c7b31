#include "codegen/InputView.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

std::optional<std::pair<unsigned, View>> inputView(const Region &region, const KernelContext &context,
                                                   Value value) {
  for (auto [index, input] : llvm::enumerate(region.inputs))
    if (input == value)
      return std::pair(static_cast<unsigned>(index), context.inputs[index]);
  Operation *op = value.getDefiningOp();
  if (!op || !op->hasTrait<nn::View>())
    return std::nullopt;
  auto source = inputView(region, context, op->getOperand(0));
  if (!source)
    return std::nullopt;
  std::optional<View> view = viewThrough(op, source->second, context.shapes);
  if (!view)
    return std::nullopt;
  return std::pair(source->first, std::move(*view));
}

} // namespace fusion
