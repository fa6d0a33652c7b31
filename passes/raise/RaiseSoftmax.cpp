// Softmax written out: exp(x - max) over its sum along an axis, and the logarithm of that.
#include "passes/Passes.h"
#include "passes/raise/Raise.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_RAISESOFTMAX
#include "passes/Passes.h.inc"

namespace raise {
namespace {

/// The axis, counted from the first dim, along which `value` reduces `of`; nothing if it does not, or drops
/// the axis and no reshape brings it back.
std::optional<int64_t> reducedAxis(Value value, StringRef kind, Value of, ShapeTable &shapes) {
  auto reshape = value.getDefiningOp<nn::ReshapeOp>();
  auto reduce = (reshape ? reshape.getX() : value).getDefiningOp<nn::ReduceOp>();
  if (!reduce || reduce.getX() != of || reduce.getKind() != kind || reduce.getAxes().size() != 1)
    return std::nullopt;
  DimShape kept = shapes.of(of);
  const int64_t rank = tensorType(of).getRank(),
                axis = reduce.getAxes()[0] + (reduce.getAxes()[0] < 0 ? rank : 0);
  if (static_cast<int64_t>(kept.size()) != rank)
    return std::nullopt;
  kept[static_cast<size_t>(axis)] = 1;
  return shapes.of(value) == kept ? std::optional(axis) : std::nullopt;
}

/// `root` is exp(`argument`) over its sum along the axis, or the logarithm of that.
void raiseAt(Operation *root, Value argument, int64_t axis, bool isLog, Raiser &raiser) {
  auto lessened = argument.getDefiningOp<nn::SubOp>();
  if (!lessened || reducedAxis(lessened.getRhs(), "max", lessened.getLhs(), raiser.shapes) != axis)
    return noteMiss(root, "softmax",
                    "the argument of nn.exp is not x - max(x) along the axis of the sum: nn.exp may overflow "
                    "where nn.softmax does not");
  if (!isF32(root->getResult(0)))
    return noteMiss(root, "softmax",
                    "written out in " + typeName(root->getResult(0)) +
                        ", where each op rounds: nn.softmax rounds once");
  OpBuilder &builder = raiser.rewriter;
  builder.setInsertionPoint(root);
  raiser.replace(root,
                 nn::build<nn::SoftmaxOp>(builder, root->getLoc(), lessened.getLhs(),
                                          {builder.getNamedAttr("axis", builder.getI64IntegerAttr(axis)),
                                           builder.getNamedAttr("log", builder.getBoolAttr(isLog))}));
}

/// exp(a) / sum(exp(a)), or times the reciprocal.
void raiseQuotient(Operation *root, Value numerator, Value sum, Raiser &raiser) {
  auto exponents = numerator.getDefiningOp<nn::ExpOp>();
  if (!exponents || !raiser.shapes.same(numerator, root->getResult(0)))
    return;
  if (auto axis = reducedAxis(sum, "sum", exponents, raiser.shapes))
    raiseAt(root, exponents.getX(), *axis, /*isLog=*/false, raiser);
}

/// a - log(sum(exp(a))).
void raiseDifference(nn::SubOp root, Raiser &raiser) {
  auto log = root.getRhs().getDefiningOp<nn::LogOp>();
  if (!log)
    return;
  auto reshape = log.getX().getDefiningOp<nn::ReshapeOp>();
  auto sum = (reshape ? reshape.getX() : log.getX()).getDefiningOp<nn::ReduceOp>();
  auto exponents = sum ? sum.getX().getDefiningOp<nn::ExpOp>() : nn::ExpOp();
  if (!exponents || exponents.getX() != root.getLhs())
    return;
  if (auto axis = reducedAxis(log.getX(), "sum", exponents, raiser.shapes))
    raiseAt(root, root.getLhs(), *axis, /*isLog=*/true, raiser);
}

} // namespace
} // namespace raise

namespace {
struct RaiseSoftmax : impl::RaiseSoftmaxBase<RaiseSoftmax> {
  void runOnOperation() override {
    using raise::Raiser;
    auto quotient = [](nn::DivOp op, Raiser &raiser) {
      raise::raiseQuotient(op, op.getLhs(), op.getRhs(), raiser);
    };
    auto product = [](nn::MulOp op, Raiser &raiser) {
      for (auto [numerator, inverse] :
           {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())})
        if (auto reciprocal = inverse.getDefiningOp<nn::ReciprocalOp>())
          return raise::raiseQuotient(op, numerator, reciprocal.getX(), raiser);
    };
    auto difference = [](nn::SubOp op, Raiser &raiser) { raise::raiseDifference(op, raiser); };
    if (failed(raise::forEachRoot<nn::DivOp>(getOperation(), quotient)) ||
        failed(raise::forEachRoot<nn::MulOp>(getOperation(), product)) ||
        failed(raise::forEachRoot<nn::SubOp>(getOperation(), difference)))
      signalPassFailure();
  }
};
} // namespace

} // namespace fusion
