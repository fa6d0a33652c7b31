#include "passes/raise/SinkGate.h"

#include "passes/raise/AttentionMatch.h"

#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace fusion::raise {

namespace {

class Matcher {
public:
  Matcher(nn::SoftmaxOp softmax, ShapeTable &shapes)
      : softmax(softmax), shapes(shapes), scores(shapes.of(softmax)) {}

  std::optional<SinkGate> match(nn::MatmulOp y) {
    auto product = onlyUserAs<nn::MulOp>(y.getY());
    if (!product || scores.size() != 4 || !isSame(product, y))
      return std::nullopt;
    Value gate = otherOperand(product, y.getY());
    if (!gate || !isRows(gate, /*keepsKeys=*/true))
      return std::nullopt;
    auto sigmoid = between<nn::SigmoidOp>(gate);
    auto difference = sigmoid ? between<nn::SubOp>(sigmoid.getX()) : nn::SubOp();
    if (!difference || !isSame(difference.getLhs(), difference) || !matchLogSum(difference.getLhs()))
      return std::nullopt;
    SinkGate found{{softmax.getX(), sinkOf(difference), softmax}, product};
    members.insert(product);
    if (!found.sink.sink || isReadElsewhere())
      return std::nullopt;
    return found;
  }

private:
  /// [batch, heads, queries], and 1 behind it if `keepsKeys`.
  bool isRows(Value value, bool keepsKeys) {
    DimShape rows(scores.begin(), scores.end() - 1);
    if (keepsKeys)
      rows.push_back(1);
    return shapes.of(value) == rows;
  }

  bool isSame(Value a, Value b) { return shapes.of(a) == shapes.of(b); }

  void take(Operation *op) { members.insert(op); }

  /// The value behind casts between floats, which become members.
  Value behindCasts(Value value) {
    while (auto cast = value.getDefiningOp<nn::CastOp>()) {
      if (!isFloat(cast.getX()) || !isFloat(value))
        break;
      take(cast);
      value = cast.getX();
    }
    return value;
  }
  /// The same behind reshapes of a row's number, too.
  Value behindViews(Value value) {
    while (true) {
      value = behindCasts(value);
      auto reshape = value.getDefiningOp<nn::ReshapeOp>();
      if (!reshape || !(isRows(value, true) || isRows(value, false)) ||
          !(isRows(reshape.getX(), true) || isRows(reshape.getX(), false)))
        return value;
      take(reshape);
      value = reshape.getX();
    }
  }
  template <class Op>
  Op between(Value value) {
    auto op = behindViews(value).getDefiningOp<Op>();
    if (op)
      take(op);
    return op;
  }

  nn::ReduceOp reduction(Value value, StringRef kind) {
    auto reduce = between<nn::ReduceOp>(value);
    const bool isOfKeys = reduce && reduce.getKind() == kind && reduce.getAxes().size() == 1 &&
                          (reduce.getAxes()[0] == 3 || reduce.getAxes()[0] == -1) &&
                          tensorType(reduce.getX()).getRank() == 4;
    return isOfKeys ? reduce : nn::ReduceOp();
  }

  bool matchLogSum(Value value) {
    auto sum = between<nn::AddOp>(value);
    if (!sum || !isSame(sum.getLhs(), sum) || !isSame(sum.getRhs(), sum))
      return false;
    for (auto [logarithm, largest] :
         {std::pair(sum.getLhs(), sum.getRhs()), std::pair(sum.getRhs(), sum.getLhs())}) {
      auto log = behindViews(logarithm).getDefiningOp<nn::LogOp>();
      if (!log)
        continue;
      take(log);
      auto total = reduction(log.getX(), "sum");
      auto exponential = total ? behindCasts(total.getX()).getDefiningOp<nn::ExpOp>() : nn::ExpOp();
      auto shifted = exponential ? behindCasts(exponential.getX()).getDefiningOp<nn::SubOp>() : nn::SubOp();
      auto max = reduction(largest, "max");
      if (!shifted || !max || !isRows(shifted.getRhs(), true) || reduction(shifted.getRhs(), "max") != max)
        return false;
      take(exponential);
      take(shifted);
      logits = behindCasts(softmax.getX());
      return behindCasts(shifted.getLhs()) == logits && behindCasts(max.getX()) == logits;
    }
    return false;
  }

  /// One score of each head, [1 or batch, heads, 1, 1]; null if it is none. It is read with the dims of the
  /// difference, of which the queries, and the keys if there are any, are 1.
  Value sinkOf(nn::SubOp difference) {
    const bool keepsKeys = isRows(difference, true);
    if (!keepsKeys && !isRows(difference, false))
      return {};
    Value sink = withoutFloatCasts(difference.getRhs());
    if (auto expand = sink.getDefiningOp<nn::ExpandOp>())
      sink = expand.getX();
    DimShape shape = shapes.of(sink);
    if (shape.size() > (keepsKeys ? 4 : 3))
      return {};
    shape.insert(shape.begin(), (keepsKeys ? 4 : 3) - shape.size(), Dim(1));
    if (!(shape[1] == scores[1]) || !(shape[0] == Dim(1) || shape[0] == scores[0]) ||
        llvm::any_of(ArrayRef(shape).drop_front(2), [](const Dim &dim) { return !(dim == Dim(1)); }))
      return {};
    return sink;
  }

  /// Whether the logits or what the gate is made of have readers beside the gate and the softmax.
  bool isReadElsewhere() {
    for (Value value = softmax.getX();; value = value.getDefiningOp()->getOperand(0)) {
      if (llvm::any_of(value.getUsers(), [&](Operation *user) { return user != softmax && !isMember(user); }))
        return true;
      if (value == logits)
        break;
    }
    return llvm::any_of(members, [&](Operation *op) {
      return !llvm::isa<nn::MulOp>(op) && llvm::any_of(op->getUsers(), [&](Operation *user) {
        return user != softmax && !isMember(user);
      });
    });
  }
  bool isMember(Operation *op) const { return members.contains(op); }

  nn::SoftmaxOp softmax;
  ShapeTable &shapes;
  const DimShape scores;
  Value logits;
  llvm::SmallPtrSet<Operation *, 16> members; ///< the gate, and casts of the logits
};

} // namespace

std::optional<SinkGate> matchSinkGate(nn::SoftmaxOp softmax, nn::MatmulOp y, ShapeTable &shapes) {
  return Matcher(softmax, shapes).match(y);
}

} // namespace fusion::raise
