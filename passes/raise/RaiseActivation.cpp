#include "passes/Passes.h"
#include "passes/raise/Polynomial.h"
#include "passes/raise/Raise.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_RAISEACTIVATION
#include "passes/Passes.h.inc"

namespace raise {
namespace {

/// An activation written around one function t = f(argument(x)): `outer` in x and t is the activation.
struct Form {
  StringRef name;
  Polynomial argument;   ///< in x
  Polynomial outer;      ///< in x and t
  StringRef approximate; ///< of nn.gelu; empty: nn.silu
};

constexpr double inverseSqrt2 = 0.70710678118654752;
constexpr double sqrt2OverPi = 0.79788456080286536;
constexpr double cubic = 0.044715;

const Form geluErf{"gelu", {{{1, 0}, inverseSqrt2}}, {{{1, 0}, 0.5}, {{1, 1}, 0.5}}, "none"};
// erf is odd: 0.5 x (1 - erf(-x / sqrt(2)))
const Form geluErfOfNegated{"gelu", {{{1, 0}, -inverseSqrt2}}, {{{1, 0}, 0.5}, {{1, 1}, -0.5}}, "none"};
const Form geluTanh{
    "gelu", {{{1, 0}, sqrt2OverPi}, {{3, 0}, sqrt2OverPi * cubic}}, {{{1, 0}, 0.5}, {{1, 1}, 0.5}}, "tanh"};
// 0.5 x (1 + tanh) with tanh(u) = 2 sigmoid(2 u) - 1
const Form geluSigmoid{
    "gelu", {{{1, 0}, 2 * sqrt2OverPi}, {{3, 0}, 2 * sqrt2OverPi * cubic}}, {{{1, 1}, 1}}, "tanh"};
const Form geluQuick{"gelu", {{{1, 0}, 1.702}}, {{{1, 1}, 1}}, "quick"};
const Form silu{"silu", {{{1, 0}, 1}}, {{{1, 1}, 1}}, ""};

/// Climbs from `value` over arithmetic on x and t, which others may read too, to the value that is
/// `form.outer`.
Operation *climb(Value value, Value x, Value t, const Form &form, double tolerance, int steps = 6) {
  if (elementType(value) == elementType(x))
    if (auto found = readPolynomial(value, x, t); found && matches(*found, form.outer, tolerance))
      return value.getDefiningOp();
  if (steps == 0)
    return nullptr;
  for (Operation *user : value.getUsers())
    if (user->getNumResults() == 1 && user->hasTrait<nn::Pointwise>())
      if (Operation *root = climb(user->getResult(0), x, t, form, tolerance, steps - 1))
        return root;
  return nullptr;
}

/// The op that is the activation `form` of x, reached from t. Several users of t are tried one by one.
Operation *findOuter(Value t, Value x, const Form &form, double tolerance) {
  for (Operation *user : t.getUsers())
    if (user->getNumResults() == 1)
      if (Operation *root = climb(user->getResult(0), x, t, form, tolerance))
        return root;
  return nullptr;
}

void raiseFunction(Operation *function, ArrayRef<const Form *> forms, Raiser &raiser) {
  Value t = function->getResult(0), argument = function->getOperand(0);
  if (!isFloat(t))
    return;
  double tolerance = constantTolerance(elementType(t));
  const Form *nearest = nullptr;
  for (Value x : polynomialVariables(argument)) {
    auto found = readPolynomial(argument, x, {});
    if (!found || !raiser.shapes.same(x, t))
      continue;
    for (const Form *form : forms) {
      if (!matches(*found, form->argument, tolerance))
        continue;
      Operation *root = findOuter(t, x, *form, tolerance);
      if (!root) {
        nearest = form;
        continue;
      }
      raiser.rewriter.setInsertionPoint(root);
      Value named;
      if (form->approximate.empty())
        named = nn::build<nn::SiluOp>(raiser.rewriter, root->getLoc(), x);
      else
        named = nn::build<nn::GeluOp>(
            raiser.rewriter, root->getLoc(), x,
            raiser.rewriter.getNamedAttr("approximate", raiser.rewriter.getStringAttr(form->approximate)));
      raiser.replace(root, named);
      return;
    }
  }
  if (nearest)
    noteMiss(function, nearest->name,
             "no product of " + function->getName().getStringRef().str() + " with its input follows");
  else if (llvm::isa<nn::ErfOp>(function)) // a tanh or a sigmoid has other uses
    noteMiss(function, "gelu", "operand 0 of nn.erf is not a value divided by sqrt(2)");
}

// Pattern: cast(act(cast(x : T) to f32)) to T -> act(x), which computes in f32 and rounds once
template <class OpTy>
struct CastsAround : OpRewritePattern<nn::CastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::CastOp cast, PatternRewriter &rewriter) const override {
    auto act = cast.getX().getDefiningOp<OpTy>();
    auto widen = act && act->hasOneUse() ? act.getX().template getDefiningOp<nn::CastOp>() : nn::CastOp();
    if (!widen || !isF32(act) || elementType(widen.getX()) != elementType(cast) || !isFloat(cast) ||
        !isExactCast(elementType(cast), elementType(act)))
      return failure();
    replaceByNew(rewriter, cast, nn::build<OpTy>(rewriter, cast.getLoc(), widen.getX(), act->getAttrs()));
    return success();
  }
};

} // namespace
} // namespace raise

namespace {
struct RaiseActivation : impl::RaiseActivationBase<RaiseActivation> {
  void runOnOperation() override {
    using raise::Raiser;
    ModuleOp module = getOperation();
    auto erf = [](nn::ErfOp op, Raiser &raiser) {
      raise::raiseFunction(op, {&raise::geluErf, &raise::geluErfOfNegated}, raiser);
    };
    auto tanh = [](nn::TanhOp op, Raiser &raiser) { raise::raiseFunction(op, {&raise::geluTanh}, raiser); };
    auto sigmoid = [](nn::SigmoidOp op, Raiser &raiser) {
      raise::raiseFunction(op, {&raise::silu, &raise::geluQuick, &raise::geluSigmoid}, raiser);
    };
    if (failed(raise::forEachRoot<nn::ErfOp>(module, erf)) ||
        failed(raise::forEachRoot<nn::TanhOp>(module, tanh)) ||
        failed(raise::forEachRoot<nn::SigmoidOp>(module, sigmoid)))
      return signalPassFailure();
    auto absorbCasts = [](func::FuncOp function, ShapeTable &shapes) {
      RewritePatternSet patterns(function.getContext());
      patterns.add<raise::CastsAround<nn::GeluOp>, raise::CastsAround<nn::SiluOp>>(function.getContext());
      return applyPatternsGreedily(function, std::move(patterns), greedyConfig(shapes));
    };
    if (failed(forEachFunction(module, absorbCasts)))
      signalPassFailure();
  }
};
} // namespace

} // namespace fusion
