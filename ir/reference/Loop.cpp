// A function applied again and again.
#include "ir/dialect/Loop.h"

#include "ir/reference/Support.h"

namespace fusion::reference {
namespace {

Result<Tensors> loop(const Call &call) {
  auto op = llvm::cast<nn::LoopOp>(call.op);
  mlir::func::FuncOp body = op.bodyFunction();
  if (!body || !body.getBody().hasOneBlock())
    return problem("there is no function @{}", op.getBody().str());
  std::optional<int64_t> steps;
  if (auto dims = op.getSteps()) {
    auto sizes = call.dims(*dims);
    if (!sizes)
      return sizes.error();
    steps = sizes->front();
  }
  const size_t states = op.getState().size();
  Tensors values(call.operands.begin(), call.operands.end());
  for (int64_t step = 0; !steps || step < *steps; ++step) {
    if (op.getConditional() && *values[0].as<uint8_t>() == 0)
      break;
    auto next = evaluateRegion(body.getBody().front(), values, call.symbols, call.options);
    if (!next)
      return next;
    std::move(next->begin(), next->begin() + static_cast<int64_t>(states), values.begin());
  }
  values.resize(states);
  return values;
}

} // namespace

llvm::ArrayRef<Entry> loopEntries() {
  static constexpr Entry entries[] = {{"nn.loop", loop}};
  return entries;
}

} // namespace fusion::reference
