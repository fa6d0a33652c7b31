#include "passes/Passes.h"

#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"
#include "passes/ShapeTable.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_FOLDCONSTANTS
#include "passes/Passes.h.inc"

namespace {

struct FoldConstants : impl::FoldConstantsBase<FoldConstants> {
  using FoldConstantsBase::FoldConstantsBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
        fold(&op);
      eraseDeadOps(function);
    }
  }

  /// Uses of the results of `op` move to constants; the op is dead then.
  void fold(Operation *op) {
    if (op->getNumOperands() == 0 || op->getNumResults() == 0 || isGrowingExpand(op) || decodesOperand(op) ||
        !llvm::all_of(op->getOperands(),
                      [](Value value) { return bool(value.getDefiningOp<nn::ConstantOp>()); }))
      return;
    auto values = foldWithReference(op, static_cast<size_t>(maxElements));
    if (!values)
      return;
    OpBuilder builder(op);
    for (auto [result, value] : llvm::zip(op->getResults(), *values)) {
      auto elements = llvm::dyn_cast<ElementsAttr>(value);
      if (result.use_empty() || !elements)
        continue;
      Value constant = nn::buildConstant(builder, op->getLoc(), elements);
      if (op->getNumResults() == 1 ? canReplaceBy(op, constant) : constant.getType() == result.getType())
        result.replaceAllUsesWith(constant);
    }
  }

  /// A quantised weight, which its product reads in fewer bytes.
  static bool decodesOperand(Operation *op) {
    return llvm::isa<nn::DequantizeOp>(op) && llvm::any_of(op->getUsers(), [](Operation *user) {
             return llvm::isa<nn::MatmulOp, nn::ExpertMatmulOp>(user);
           });
  }

  static bool isGrowingExpand(Operation *op) {
    auto expand = llvm::dyn_cast<nn::ExpandOp>(op);
    return expand && (!tensorType(expand).hasStaticShape() ||
                      tensorType(expand).getNumElements() > tensorType(expand.getX()).getNumElements());
  }
};

} // namespace

} // namespace fusion
