#include "passes/Passes.h"

#include "ir/dialect/Build.h"
#include "passes/Match.h"
#include "passes/Positions.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_FOLDPOSITIONS
#include "passes/Passes.h.inc"

namespace {

struct FoldPositions : impl::FoldPositionsBase<FoldPositions> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(fold(function)))
        return signalPassFailure();
  }

  LogicalResult fold(func::FuncOp function) {
    auto shapes = ShapeTable::compute(function);
    if (failed(shapes))
      return failure();
    Positions positions(*shapes);
    // Every answer before the first change.
    SmallVector<std::pair<Operation *, bool>> decided;
    for (Operation &op : function.getBody().front()) {
      if (!isCondition(&op))
        continue;
      auto condition = positions.condition(op.getResult(0));
      if (condition && (condition->never || condition->always()))
        decided.push_back({&op, condition->always()});
    }
    IRRewriter rewriter(function.getContext(), &*shapes);
    for (auto [op, truth] : decided) {
      rewriter.setInsertionPoint(op);
      DimShape shape = shapes->of(op->getResult(0));
      Value constant = nn::buildScalar(rewriter, op->getLoc(), rewriter.getI1Type(), truth);
      if (!shape.empty())
        constant = nn::build<nn::ExpandOp>(
            rewriter, op->getLoc(), constant,
            rewriter.getNamedAttr("shape", nn::dimsToAttr(rewriter.getContext(), shape)));
      replaceByNew(rewriter, op, constant);
    }
    eraseDeadOps(function);
    return success();
  }

  static bool isCondition(Operation *op) {
    return op->getNumResults() == 1 && llvm::isa<nn::ShapeInference>(op) &&
           elementType(op->getResult(0)).isInteger(1) &&
           !llvm::isa<nn::ConstantOp, nn::WeightOp, nn::ExpandOp, nn::ReshapeOp>(op);
  }
};

} // namespace

} // namespace fusion
