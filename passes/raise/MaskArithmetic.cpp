#include "passes/raise/MaskArithmetic.h"

#include <cmath>

using namespace mlir;

namespace fusion::raise {

namespace {

/// Strips reshapes and expansions, which go to `views`, but for expansions outside of all others: the op that
/// reads the value does the same.
Value withoutViews(Value value, SmallVector<View> &views, ShapeTable &shapes) {
  while (true) {
    Operation *op = value.getDefiningOp();
    const bool expands = llvm::isa_and_nonnull<nn::ExpandOp>(op);
    if (!expands && !llvm::isa_and_nonnull<nn::ReshapeOp>(op))
      return value;
    // A view of the same kind does what those inside of it do.
    if (views.empty() ? !expands : views.back().expands != expands)
      views.push_back({expands, shapes.of(value)});
    value = op->getOperand(0);
  }
}

Condition matchCondition(Value value, bool inverted, SmallVector<View> views, ShapeTable &shapes) {
  Condition found{withoutViews(value, views, shapes), inverted, {}};
  while (auto negated = found.base.getDefiningOp<nn::NotOp>()) {
    found.inverted = !found.inverted;
    found.base = withoutViews(negated.getX(), views, shapes);
  }
  if (auto cast = found.base.getDefiningOp<nn::CastOp>())
    if (cast.getX().getDefiningOp<nn::ConstantOp>() && isFloat(cast.getX()))
      found.base = cast.getX(); // as buildCondition() makes it
  if (views.size() == 1 && views[0].shape == shapes.of(found.base))
    views.clear();
  found.views = views;
  return found;
}

/// The elements of a constant of zeros and one other number, which goes to `number`, that are not 0.
std::optional<SmallVector<bool>> matchTwoNumbers(Value value, double &number) {
  auto constant = value.getDefiningOp<nn::ConstantOp>();
  auto elements = constant ? llvm::dyn_cast<DenseFPElementsAttr>(constant.getValue()) : DenseFPElementsAttr();
  if (!elements)
    return std::nullopt;
  SmallVector<bool> set;
  std::optional<APFloat> found;
  for (const APFloat &element : elements) {
    set.push_back(!element.isZero());
    if (element.isZero())
      continue;
    if (found && !found->bitwiseIsEqual(element))
      return std::nullopt;
    found = element;
  }
  if (!found || llvm::all_of(set, [](bool isSet) { return isSet; }))
    return std::nullopt;
  number = FloatAttr::get(elements.getElementType(), *found).getValueAsDouble();
  return set;
}

/// mul(x, number), whose number goes to `factor`, as x.
Value withoutFactor(Value value, double &factor) {
  if (auto mul = value.getDefiningOp<nn::MulOp>())
    for (auto [x, number] : {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())})
      if (auto constant = constantScalar(number);
          constant && tensorType(x).getRank() == tensorType(value).getRank()) {
        factor = *constant;
        return x;
      }
  return value;
}

} // namespace

Condition matchCondition(Value value, bool inverted, ShapeTable &shapes) {
  return matchCondition(value, inverted, {}, shapes);
}

bool same(const Condition &left, const Condition &right) {
  if (left.views != right.views)
    return false;
  if (left.base == right.base)
    return left.inverted == right.inverted;
  double number;
  auto leftSet = matchTwoNumbers(left.base, number), rightSet = matchTwoNumbers(right.base, number);
  return leftSet && rightSet && tensorType(left.base) == tensorType(right.base) &&
         llvm::all_of(llvm::zip(*leftSet, *rightSet), [&](const auto &pair) {
           return (std::get<0>(pair) != left.inverted) == (std::get<1>(pair) != right.inverted);
         });
}

Value buildCondition(const Condition &condition, Location location, Raiser &raiser) {
  auto &b = raiser.rewriter;
  Value value = condition.base;
  if (!elementType(value).isInteger(1)) // a constant
    value = nn::build<nn::CastOp>(b, location, value, {}, b.getI1Type());
  for (const View &view : llvm::reverse(condition.views))
    value =
        view.expands
            ? Value(nn::build<nn::ExpandOp>(
                  b, location, value, b.getNamedAttr("shape", nn::dimsToAttr(b.getContext(), view.shape))))
            : nn::buildReshape(b, location, value, view.shape);
  return condition.inverted ? Value(nn::build<nn::NotOp>(b, location, value)) : value;
}

std::optional<Indicator> matchIndicator(Value value, ShapeTable &shapes) {
  Indicator found;
  SmallVector<View> views;
  bool inverted = false, wasCast = false;
  value = withoutFactor(withoutViews(value, views, shapes), found.factor);
  while (true) {
    value = withoutViews(value, views, shapes);
    double number;
    if (!inverted && matchTwoNumbers(value, number) && (!wasCast || number == 1)) {
      found.factor *= number;
      found.condition = {value, false, views};
      return found;
    }
    if (auto sub = value.getDefiningOp<nn::SubOp>()) {
      if (!isConstant(sub.getLhs(), 1) || !shapes.same(value, sub.getRhs()))
        return std::nullopt;
      inverted = !inverted;
      value = sub.getRhs();
      continue;
    }
    auto cast = value.getDefiningOp<nn::CastOp>();
    if (!cast)
      return std::nullopt;
    value = cast.getX();
    wasCast = true;
    if (elementType(value).isInteger(1))
      break;
  }
  found.condition = matchCondition(value, inverted, views, shapes);
  return found;
}

std::optional<Blend> matchBlend(Value value, ShapeTable &shapes) {
  Operation *op = value.getDefiningOp();
  if (!llvm::isa_and_nonnull<nn::AddOp, nn::SubOp>(op))
    return std::nullopt;
  const bool subtracts = llvm::isa<nn::SubOp>(op);
  for (unsigned i : {1u, 0u}) {
    auto product = op->getOperand(1 - i).getDefiningOp<nn::MulOp>();
    auto number = product ? matchIndicator(op->getOperand(i), shapes) : std::nullopt;
    if (!number || (subtracts && i == 0))
      continue;
    const double lowest = subtracts ? -number->factor : number->factor;
    if (!isMaskedScore(lowest) || std::isinf(lowest))
      continue;
    const Condition kept = number->condition.negated();
    for (auto [scores, factor] :
         {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())})
      if (auto keeps = matchIndicator(factor, shapes);
          keeps && keeps->factor == 1 && same(keeps->condition, kept))
        return Blend{scores, keeps->condition, lowest};
  }
  return std::nullopt;
}

Operation *matchMaskGuard(Value probabilities, const MaskTerm &mask, ShapeTable &shapes) {
  if (mask.isFloat())
    return nullptr;
  const Condition kept = matchCondition(mask.mask, mask.inverted, shapes);
  Operation *user = onlyUser(probabilities);
  if (auto where = llvm::dyn_cast_or_null<nn::WhereOp>(user)) {
    const bool inverted = where.getY() == probabilities;
    if (isConstant(inverted ? where.getX() : where.getY(), 0) &&
        same(matchCondition(where.getCondition(), inverted, shapes), kept))
      return user;
  }
  if (auto mul = llvm::dyn_cast_or_null<nn::MulOp>(user)) {
    Value other = otherOperand(mul, probabilities);
    auto keeps = other ? matchIndicator(other, shapes) : std::nullopt;
    if (!keeps || keeps->factor != 1 || !same(keeps->condition, kept))
      return nullptr;
    // where(c, p, 0) may come as p * c + 0 * (1 - c).
    auto add = onlyUserAs<nn::AddOp>(mul);
    Value rest = add ? otherOperand(add, mul) : Value();
    auto nothing = rest ? matchIndicator(rest, shapes) : std::nullopt;
    return nothing && nothing->factor == 0 && same(nothing->condition, kept.negated()) ? add.getOperation()
                                                                                       : user;
  }
  return nullptr;
}

} // namespace fusion::raise
