#include "passes/raise/NormAbsorb.h"

#include "passes/raise/Raise.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace fusion::raise {

namespace {

/// Makes the type in which value and weight meet explicit, before the weight's type changes.
template <class OpTy>
void setScaleType(OpTy norm, Type scaleType) {
  norm.setScaleInAttr(TypeAttr::get(scaleType));
}

// Pattern: norm(cast(x), w) -> norm(x, w) where the cast is exact: the norm computes in f32 anyway
template <class OpTy>
struct CastOfInput : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy norm, PatternRewriter &rewriter) const override {
    Value x = withoutExactCast(norm.getX());
    if (x == norm.getX())
      return failure();
    replaceByChanged(rewriter, norm, [&](OpTy changed) { changed.getXMutable().assign(x); });
    return success();
  }
};

// Pattern: norm(x, cast(w)) -> norm(x, w) {scale_in = type of the cast} where the cast is exact
template <class OpTy>
struct CastOfWeight : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy norm, PatternRewriter &rewriter) const override {
    Value weight = withoutExactCast(norm.getWeight());
    if (weight == norm.getWeight())
      return failure();
    Type scaleType = norm.scaleType();
    replaceByChanged(rewriter, norm, [&](OpTy changed) {
      setScaleType(changed, scaleType);
      changed.getWeightMutable().assign(weight);
    });
    return success();
  }
};

// Pattern: layer_norm(x, w, cast(b)) -> layer_norm(x, w, b) where the cast is exact
struct CastOfBias : OpRewritePattern<nn::LayerNormOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::LayerNormOp norm, PatternRewriter &rewriter) const override {
    Value bias = norm.getBias() ? withoutExactCast(norm.getBias()) : Value();
    if (bias == norm.getBias())
      return failure();
    replaceByChanged(rewriter, norm, [&](nn::LayerNormOp changed) { changed.getBiasMutable().assign(bias); });
    return success();
  }
};

// Pattern: cast(norm(x, w) : f32) -> norm(x, w) of the cast's type: what is f32 was not rounded yet
template <class OpTy>
struct CastOfResult : OpRewritePattern<nn::CastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::CastOp cast, PatternRewriter &rewriter) const override {
    auto norm = cast.getX().getDefiningOp<OpTy>();
    if (!norm || !isF32(norm) || !isFloat(cast) || elementType(cast).isF64() || !norm->hasOneUse())
      return failure();
    Value built =
        nn::build<OpTy>(rewriter, cast.getLoc(), norm->getOperands(), norm->getAttrs(), elementType(cast));
    replaceByNew(rewriter, cast, built);
    return success();
  }
};

// Pattern: rms_norm(x, add(w, c)) -> rms_norm(x, w) {weight_bias = c} where the add is in scale_in
struct BiasOfWeight : OpRewritePattern<nn::RmsNormOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::RmsNormOp norm, PatternRewriter &rewriter) const override {
    auto offset = matchAddConstant(norm.getWeight());
    if (!offset || !norm.getWeightBias().isZero() || norm.scaleType() != elementType(norm.getWeight()) ||
        tensorType(offset->value) != tensorType(norm.getWeight()))
      return failure();
    Type scaleType = norm.scaleType();
    replaceByChanged(rewriter, norm, [&](nn::RmsNormOp changed) {
      changed.setWeightBias(llvm::APFloat(static_cast<float>(offset->constant)));
      changed.getWeightMutable().assign(offset->value);
      setScaleType(changed, scaleType);
    });
    return success();
  }
};

// Pattern: mul(rms_norm(x, ones), w) -> rms_norm(x, w) {scale_in = type of the product}
struct NormOfOnes : OpRewritePattern<nn::MulOp> {
  NormOfOnes(MLIRContext *context, ShapeTable &shapes) : OpRewritePattern(context), shapes(shapes) {}
  LogicalResult matchAndRewrite(nn::MulOp mul, PatternRewriter &rewriter) const override {
    for (auto [left, weight] :
         {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())}) {
      auto norm = left.getDefiningOp<nn::RmsNormOp>();
      if (!norm || !norm->hasOneUse() || !isConstant(norm.getWeight(), 1) || !norm.getWeightBias().isZero() ||
          tensorType(weight).getRank() != 1 || !isRowOf(weight, left, shapes) ||
          !isExactCast(elementType(norm), norm.scaleType()))
        continue;
      // n rounds once, to the result's type, since scale_in holds all its values; there the product is taken.
      Value built =
          nn::build<nn::RmsNormOp>(rewriter, mul.getLoc(), {norm.getX(), weight},
                                   {rewriter.getNamedAttr("eps", norm.getEpsAttr()),
                                    rewriter.getNamedAttr("scale_in", TypeAttr::get(elementType(norm)))},
                                   elementType(mul));
      replaceByNew(rewriter, mul, built);
      return success();
    }
    return failure();
  }

private:
  ShapeTable &shapes;
};

// Pattern: rms_norm(sub(x, mean(x)), w) -> layer_norm(x, w) where x is centred in f32
struct CentredInput : OpRewritePattern<nn::RmsNormOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::RmsNormOp norm, PatternRewriter &rewriter) const override {
    Value x = matchCentred(norm.getX());
    if (!x)
      return failure();
    auto miss = [&](const std::string &reason) {
      noteMiss(norm, "layer_norm", reason);
      return failure();
    };
    if (!isF32(x))
      return miss("the mean is subtracted in " + typeName(x) + ", not in f32");
    if (!norm.getWeightBias().isZero())
      return miss("the weight is stored without its 1");
    // The layer norm rounds the product to scale_in before the result's type, the rms norm does not.
    Type scaleType = norm.scaleType(), resultType = elementType(norm);
    if (!scaleType.isF32() && scaleType != resultType)
      return miss("the product with the weight is not rounded to the type in which they meet");
    Value built = nn::build<nn::LayerNormOp>(rewriter, norm.getLoc(), {x, norm.getWeight()},
                                             {rewriter.getNamedAttr("eps", norm.getEpsAttr()),
                                              rewriter.getNamedAttr("scale_in", TypeAttr::get(scaleType))},
                                             resultType);
    noteRaised(norm, "layer_norm");
    replaceByNew(rewriter, norm, built);
    return success();
  }
};

// Pattern: norm {scale_in = type of the weight} -> norm
template <class OpTy>
struct RedundantScaleType : OpRewritePattern<OpTy> {
  using OpRewritePattern<OpTy>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpTy norm, PatternRewriter &rewriter) const override {
    if (!norm.getScaleIn() || *norm.getScaleIn() != elementType(norm.getWeight()))
      return failure();
    replaceByChanged(rewriter, norm, [&](OpTy changed) { changed.removeScaleInAttr(); });
    return success();
  }
};

} // namespace

LogicalResult absorbIntoNorms(ModuleOp module) {
  return forEachFunction(module, [&](func::FuncOp function, ShapeTable &shapes) {
    RewritePatternSet patterns(module.getContext());
    patterns.add<CastOfInput<nn::RmsNormOp>, CastOfInput<nn::LayerNormOp>, CastOfWeight<nn::RmsNormOp>,
                 CastOfWeight<nn::LayerNormOp>, CastOfBias, CastOfResult<nn::RmsNormOp>,
                 CastOfResult<nn::LayerNormOp>, BiasOfWeight, CentredInput, RedundantScaleType<nn::RmsNormOp>,
                 RedundantScaleType<nn::LayerNormOp>>(module.getContext());
    patterns.add<NormOfOnes>(module.getContext(), shapes);
    return applyPatternsGreedily(function, std::move(patterns), greedyConfig(shapes));
  });
}

} // namespace fusion::raise
