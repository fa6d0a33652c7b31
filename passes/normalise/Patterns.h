// The rewrites of nn-canonicalize, one function a rewrite.
#pragma once

#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"
#include "passes/ShapeTable.h"

namespace fusion::normalise {

/// A rewrite of one op kind that may ask for symbolic shapes.
template <class OpTy>
class ShapedPattern : public mlir::OpRewritePattern<OpTy> {
public:
  using Rewrite = llvm::LogicalResult (*)(OpTy, mlir::PatternRewriter &, ShapeTable &);
  ShapedPattern(mlir::MLIRContext *context, ShapeTable &shapes, Rewrite rewrite)
      : mlir::OpRewritePattern<OpTy>(context), shapes(shapes), rewrite(rewrite) {}
  llvm::LogicalResult matchAndRewrite(OpTy op, mlir::PatternRewriter &rewriter) const override {
    return rewrite(op, rewriter, shapes);
  }

private:
  ShapeTable &shapes;
  Rewrite rewrite;
};

/// The same for pointwise ops of any kind.
class PointwisePattern : public mlir::RewritePattern {
public:
  using Rewrite = llvm::LogicalResult (*)(mlir::Operation *, mlir::PatternRewriter &, ShapeTable &);
  PointwisePattern(mlir::MLIRContext *context, ShapeTable &shapes, Rewrite rewrite)
      : mlir::RewritePattern(MatchAnyOpTypeTag(), 1, context), shapes(shapes), rewrite(rewrite) {}
  llvm::LogicalResult matchAndRewrite(mlir::Operation *op, mlir::PatternRewriter &rewriter) const override {
    return op->hasTrait<nn::Pointwise>() ? rewrite(op, rewriter, shapes) : llvm::failure();
  }

private:
  ShapeTable &shapes;
  Rewrite rewrite;
};

template <class OpTy>
void add(mlir::RewritePatternSet &patterns, ShapeTable &shapes,
         typename ShapedPattern<OpTy>::Rewrite rewrite) {
  patterns.add(std::make_unique<ShapedPattern<OpTy>>(patterns.getContext(), shapes, rewrite));
}
inline void addPointwise(mlir::RewritePatternSet &patterns, ShapeTable &shapes,
                         PointwisePattern::Rewrite rewrite) {
  patterns.add(std::make_unique<PointwisePattern>(patterns.getContext(), shapes, rewrite));
}

/// `op` again on other operands: same attributes, element type and location; its shape is inferred.
mlir::Value rebuild(mlir::OpBuilder &builder, mlir::Operation *op, mlir::ValueRange operands);
/// Replaces `op` by `value`, which exists already, if types allow.
llvm::LogicalResult replaceByExisting(mlir::PatternRewriter &rewriter, mlir::Operation *op,
                                      mlir::Value value);

void addArithmetic(mlir::RewritePatternSet &patterns, ShapeTable &shapes);
void addViews(mlir::RewritePatternSet &patterns, ShapeTable &shapes);
void addHeads(mlir::RewritePatternSet &patterns, ShapeTable &shapes);
void addGathers(mlir::RewritePatternSet &patterns, ShapeTable &shapes);
void addScatters(mlir::RewritePatternSet &patterns, ShapeTable &shapes);
void addBroadcasts(mlir::RewritePatternSet &patterns, ShapeTable &shapes);
void addClamps(mlir::RewritePatternSet &patterns, ShapeTable &shapes);
void addMatmul(mlir::RewritePatternSet &patterns, ShapeTable &shapes);

} // namespace fusion::normalise
