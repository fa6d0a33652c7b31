// where(the group of an element is among the best groups, x, other), as routers limit the experts that they
// choose from.
#include "passes/Passes.h"
#include "passes/raise/Raise.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_RAISEGROUPLIMIT
#include "passes/Passes.h.inc"

namespace raise {
namespace {

constexpr llvm::StringLiteral pattern = "limit_groups";

Value withoutReshapes(Value value) {
  while (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
    value = reshape.getX();
  return value;
}

bool isLastAxis(int64_t axis, Value value) { return axis == -1 || axis == tensorType(value).getRank() - 1; }

/// The dim at `place` from the end, of which the last is 1, if it is static; else 0.
int64_t fromEnd(Value value, int64_t place) {
  auto type = tensorType(value);
  const int64_t dim = type.getRank() - place;
  return dim < 0 || type.isDynamicDim(static_cast<unsigned>(dim))
             ? 0
             : type.getDimSize(static_cast<unsigned>(dim));
}

/// The places that `index` holds, behind reshapes and casts, along the last axis; null if they are not such.
nn::TopKOp placesOf(Value index) {
  for (;;) {
    index = withoutReshapes(index);
    auto cast = index.getDefiningOp<nn::CastOp>();
    if (!cast)
      break;
    if (isFloat(cast.getX()) || !elementType(cast).isIntOrIndex() || elementType(cast).isInteger(1))
      return {};
    index = cast.getX();
  }
  auto topK = index.getDefiningOp<nn::TopKOp>();
  return topK && isLastAxis(topK.getAxis(), topK.getX()) ? topK : nn::TopKOp();
}

/// A constant 0, 1, .. along its last dim, whose other dims are 1.
bool isCount(Value value) {
  auto constant = value.getDefiningOp<nn::ConstantOp>();
  if (!constant || !elementType(value).isIntOrIndex() || tensorType(value).getRank() == 0 ||
      tensorType(value).getNumElements() != fromEnd(value, 1))
    return false;
  int64_t next = 0;
  for (const APInt &element : llvm::cast<DenseElementsAttr>(constant.getValue()).getValues<APInt>())
    if (element.getSExtValue() != next++)
      return false;
  return true;
}

/// A condition, or zeros and ones, that tells for each element of a row whether its group is chosen.
class Membership {
public:
  /// How the last dims of a value lie.
  enum class Form : uint8_t {
    Elements, ///< [groups * size]
    Grouped,  ///< [groups, size]
    Column,   ///< [groups, 1]
    Groups,   ///< [groups]
    Slots,    ///< [chosen groups, groups]: each compared with all
  };

  /// `condition` for elements of the form Elements, or of the form Grouped or Column.
  Membership(Value condition, Form form) : form(form) {
    groups = form == Form::Elements ? 0 : fromEnd(condition, 2);
    for (Value value = condition; Operation *op = value.getDefiningOp();) {
      if (auto equal = llvm::dyn_cast<nn::EqualOp>(op); equal && isCount(equal.getRhs()) && takes(equal))
        return;
      value = operandOf(op);
      if (!value)
        return;
    }
  }

  nn::TopKOp chosen; ///< null if the condition tells something else
  int64_t groups;
  bool others = false; ///< it holds for the groups that are not chosen

private:
  bool takes(nn::EqualOp equal) {
    nn::TopKOp topK = placesOf(equal.getLhs());
    if (!topK || groups == 0 || fromEnd(topK.getX(), 1) != groups || fromEnd(equal, 1) != groups ||
        fromEnd(equal.getLhs(), 1) != 1)
      return false;
    const int64_t kept = fromEnd(topK, 1);
    if (kept == 0 || (form == Form::Slots ? fromEnd(equal, 2) != kept : form != Form::Groups || kept != 1))
      return false;
    chosen = topK;
    return true;
  }

  /// What alone decides `op`, or null.
  Value operandOf(Operation *op) {
    if (auto reshape = llvm::dyn_cast<nn::ReshapeOp>(op))
      return reshaped(reshape);
    if (auto expand = llvm::dyn_cast<nn::ExpandOp>(op)) {
      if (form != Form::Grouped || fromEnd(expand.getX(), 1) != 1 || fromEnd(expand.getX(), 2) != groups)
        return {};
      form = Form::Column;
      return expand.getX();
    }
    if (auto reduce = llvm::dyn_cast<nn::ReduceOp>(op)) {
      if (form != Form::Groups || others || (reduce.getKind() != "max" && reduce.getKind() != "sum") ||
          reduce.getKeepdims() || reduce.getAxes().size() != 1 ||
          reduce.getAxes()[0] != tensorType(reduce.getX()).getRank() - 2)
        return {};
      form = Form::Slots;
      return reduce.getX();
    }
    if (auto where = llvm::dyn_cast<nn::WhereOp>(op)) {
      const bool turned = isConstant(where.getOperand(1), 0) && isConstant(where.getOperand(2), 1);
      if (!turned && !(isConstant(where.getOperand(1), 1) && isConstant(where.getOperand(2), 0)))
        return {};
      others ^= turned;
      return where.getOperand(0);
    }
    const bool isZero = llvm::isa<nn::EqualOp>(op) && isConstant(op->getOperand(1), 0);
    if (isZero || (llvm::isa<nn::NotOp>(op) && elementType(op->getResult(0)).isInteger(1))) {
      others = !others;
      return op->getOperand(0);
    }
    if (llvm::isa<nn::CastOp>(op) || (llvm::isa<nn::GreaterOp>(op) && isConstant(op->getOperand(1), 0)) ||
        (llvm::isa<nn::EqualOp>(op) && isConstant(op->getOperand(1), 1)))
      return op->getOperand(0);
    return {};
  }

  Value reshaped(nn::ReshapeOp reshape) {
    Value x = reshape.getX();
    const bool sameLast = fromEnd(x, 1) != 0 && fromEnd(x, 1) == fromEnd(reshape, 1);
    switch (form) {
    case Form::Elements:
      groups = fromEnd(x, 2);
      if (sameLast && (groups != 1 || tensorType(x).getRank() <= tensorType(reshape).getRank()))
        return x;
      if (groups == 0 || groups * fromEnd(x, 1) != fromEnd(reshape, 1))
        return {};
      form = Form::Grouped;
      return x;
    case Form::Column:
      if (fromEnd(x, 1) == groups && !(sameLast && fromEnd(x, 2) == groups)) {
        form = Form::Groups;
        return x;
      }
      [[fallthrough]];
    case Form::Grouped:
    case Form::Slots:
      return sameLast && fromEnd(x, 2) != 0 && fromEnd(x, 2) == fromEnd(reshape, 2) ? x : Value();
    case Form::Groups:
      return sameLast ? x : Value();
    }
    return {};
  }

  Form form;
};

/// The elements that are added up to the score of each group of `x`, or a reason why it is something else.
std::variant<int64_t, std::string> summedFor(Value scores, Value x, int64_t groups) {
  const std::string other = "the groups are not chosen by the sum or the maximum of their largest elements";
  auto reduce = withoutReshapes(scores).getDefiningOp<nn::ReduceOp>();
  if (!reduce || reduce.getAxes().size() != 1 || !isLastAxis(reduce.getAxes()[0], reduce.getX()))
    return other;
  Value grouped = reduce.getX();
  int64_t summed = 1;
  if (reduce.getKind() == "sum") {
    auto taken = grouped.getDefiningOp<nn::GatherElementsOp>();
    nn::TopKOp best = taken ? placesOf(taken.getIndices()) : nn::TopKOp();
    if (!best || best.getX() != taken.getX() || taken.getIndices() != best.getY() ||
        !isLastAxis(taken.getAxis(), taken.getX()))
      return other;
    summed = fromEnd(best, 1);
    grouped = best.getX();
  } else if (reduce.getKind() != "max") {
    return other;
  }
  if (summed == 0 || fromEnd(grouped, 2) != groups || fromEnd(grouped, 1) == 0)
    return other;
  if (withoutReshapes(grouped) != withoutReshapes(x))
    return std::string("the groups are chosen by other elements than those that they keep");
  return summed;
}

// where(member of the best groups, x, other) -> limit_groups(x)
void raiseAt(nn::WhereOp where, Raiser &raiser) {
  Value condition = where.getOperand(0);
  for (bool isGrouped : {false, true}) {
    const bool isColumn = fromEnd(condition, 1) == 1;
    if (!isGrouped && isColumn)
      continue;
    const Membership members(condition, !isGrouped ? Membership::Form::Elements
                                        : isColumn ? Membership::Form::Column
                                                   : Membership::Form::Grouped);
    if (!members.chosen)
      continue;
    Value x = where.getOperand(members.others ? 2 : 1);
    const auto other = constantScalar(where.getOperand(members.others ? 1 : 2));
    auto miss = [&](std::string reason) { noteMiss(where, pattern, std::move(reason)); };
    if (!other || !raiser.shapes.same(x, where) || (isGrouped && fromEnd(x, 2) != members.groups))
      return miss("the others have no number");
    if (!isF32(x))
      return miss("elements of " + typeName(x) + ": it is of f32");
    nn::TopKOp chosen = members.chosen;
    auto summed = summedFor(chosen.getX(), x, members.groups);
    if (auto *reason = std::get_if<std::string>(&summed))
      return miss(*reason);
    const int64_t kept = fromEnd(chosen, 1);
    auto &rewriter = raiser.rewriter;
    if (kept == members.groups) // of one group, mostly
      return x.getType() == where.getType() ? rewriter.replaceOp(where, x) : void();
    rewriter.setInsertionPoint(where);
    DimShape shape = raiser.shapes.of(x), flat = shape;
    if (isGrouped) {
      flat.pop_back();
      flat.back() = shape[flat.size() - 1] * shape.back();
      x = nn::buildReshape(rewriter, where.getLoc(), x, flat);
    }
    Value limited = nn::build<nn::LimitGroupsOp>(
        rewriter, where.getLoc(), x,
        {rewriter.getNamedAttr("groups", rewriter.getI64IntegerAttr(members.groups)),
         rewriter.getNamedAttr("kept", rewriter.getI64IntegerAttr(kept)),
         rewriter.getNamedAttr("summed", rewriter.getI64IntegerAttr(std::get<int64_t>(summed))),
         rewriter.getNamedAttr("other", rewriter.getF32FloatAttr(static_cast<float>(*other)))});
    return raiser.replace(where,
                          isGrouped ? nn::buildReshape(rewriter, where.getLoc(), limited, shape) : limited);
  }
}

} // namespace
} // namespace raise

namespace {
struct RaiseGroupLimit : impl::RaiseGroupLimitBase<RaiseGroupLimit> {
  void runOnOperation() override {
    if (failed(raise::forEachRoot<nn::WhereOp>(getOperation(), raise::raiseAt)))
      signalPassFailure();
  }
};
} // namespace

} // namespace fusion
