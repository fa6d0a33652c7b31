#include "passes/Passes.h"

#include "passes/Unpack.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_UNPACKGATES
#include "passes/Passes.h.inc"

namespace {

/// The op that ends a chain of elementwise ops with one reader each, or what reads the slice.
Operation *commonReader(nn::SliceOp slice) {
  Value value = slice.getY();
  while (value.hasOneUse()) {
    Operation *reader = *value.user_begin();
    if (!reader->hasTrait<nn::Pointwise>())
      return nullptr;
    const bool meets =
        llvm::count_if(reader->getOperands(), [](Value operand) {
          return operand.getDefiningOp() && !llvm::isa<nn::ConstantOp>(operand.getDefiningOp());
        }) > 1;
    if (meets)
      return reader;
    value = reader->getResult(0);
  }
  return nullptr;
}

/// Both halves, each through elementwise ops of its own, are operands of one op.
bool areGateAndUp(ArrayRef<nn::SliceOp> parts) {
  if (parts.size() != 2)
    return false;
  Operation *first = commonReader(parts[0]);
  return first && first == commonReader(parts[1]);
}

struct UnpackGates : impl::UnpackGatesBase<UnpackGates> {
  void runOnOperation() override {
    auto unpack = [](func::FuncOp function, ShapeTable &shapes) {
      unpackProjections(function, shapes, areGateAndUp);
      return success();
    };
    if (failed(forEachFunction(getOperation(), unpack)))
      signalPassFailure();
  }
};

} // namespace

} // namespace fusion
