#include "passes/Passes.h"
#include "passes/normalise/Patterns.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_CANONICALIZE
#include "passes/Passes.h.inc"

namespace normalise {

Value rebuild(OpBuilder &builder, Operation *op, ValueRange operands) {
  std::string error;
  Operation *built = nn::createInferred(builder, op->getLoc(), op->getName().getStringRef(), operands,
                                        op->getAttrs(), elementType(op->getResult(0)), error);
  if (!built)
    llvm::report_fatal_error(llvm::Twine("rebuilding ") + op->getName().getStringRef() + ": " + error);
  return built->getResult(0);
}

LogicalResult replaceByExisting(PatternRewriter &rewriter, Operation *op, Value value) {
  if (!canReplaceBy(op, value))
    return failure();
  rewriter.replaceOp(op, value);
  return success();
}

} // namespace normalise

namespace {
struct Canonicalize : impl::CanonicalizeBase<Canonicalize> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(canonicalize(function)))
        return signalPassFailure();
  }

  LogicalResult canonicalize(func::FuncOp function) {
    auto shapes = ShapeTable::compute(function);
    if (failed(shapes))
      return failure();
    // The patterns refer to the shapes of this function, so the set lives as long as they do.
    RewritePatternSet patterns(&getContext());
    normalise::addArithmetic(patterns, *shapes);
    normalise::addViews(patterns, *shapes);
    normalise::addHeads(patterns, *shapes);
    normalise::addGathers(patterns, *shapes);
    normalise::addScatters(patterns, *shapes);
    normalise::addClamps(patterns, *shapes);
    normalise::addBroadcasts(patterns, *shapes);
    normalise::addMatmul(patterns, *shapes);
    return applyPatternsGreedily(function, std::move(patterns), greedyConfig(*shapes));
  }
};
} // namespace

} // namespace fusion
