#include "passes/Positions.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

namespace {

bool isView(Operation *op) { return op->hasTrait<nn::View>(); }

bool isInteger(Value value) { return llvm::isa<IntegerType>(elementType(value)); }
bool isBool(Value value) { return elementType(value).isInteger(1); }

/// Steps of an operand in the dims of a result that it broadcasts to.
Affine broadcast(const Affine &from, const DimShape &shape, size_t rank) {
  Affine result{from.base, SmallVector<int64_t>(rank, 0)};
  for (size_t i = 0; i < shape.size(); ++i)
    if (!(shape[i] == Dim(1)))
      result.steps[rank - shape.size() + i] = from.steps[i];
  return result;
}

std::optional<Affine> reshaped(const Affine &from, const DimShape &before, const DimShape &after) {
  Affine result{from.base, SmallVector<int64_t>(after.size(), 0)};
  if (from.isUniform())
    return result;
  // Only dims of size 1 may come and go.
  size_t next = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i] == Dim(1))
      continue;
    while (next < before.size() && before[next] == Dim(1))
      ++next;
    if (next == before.size() || !(before[next] == after[i]))
      return std::nullopt;
    result.steps[i] = from.steps[next++];
  }
  for (; next < before.size(); ++next)
    if (!(before[next] == Dim(1)))
      return std::nullopt;
  return result;
}

/// Chains of more ops than this are not looked through.
constexpr int deepest = 200;

/// Constants of more elements than this are not looked through.
constexpr int64_t mostElements = 1 << 22;

/// Of a constant with ones up to a diagonal of its last two dims and zeros beyond: row - column + offset >=
/// 0.
std::optional<Affine> lowerTriangle(Value value) {
  auto constant = value.getDefiningOp<nn::ConstantOp>();
  auto elements = constant ? llvm::dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!elements || elements.getNumElements() > mostElements || elements.getType().getRank() < 2)
    return std::nullopt;
  const auto rank = static_cast<size_t>(elements.getType().getRank());
  const int64_t columns = elements.getType().getDimSize(rank - 1),
                rows = elements.getType().getDimSize(rank - 2);
  if (rows < 2 || columns < 2)
    return std::nullopt;
  auto values = elements.getValues<APInt>();
  int64_t inFirst = 0;
  while (inFirst < columns && values[inFirst].isOne())
    ++inFirst;
  for (auto [index, element] : llvm::enumerate(values)) {
    const auto at = static_cast<int64_t>(index), row = at / columns % rows, column = at % columns;
    if (element.getZExtValue() != (column < inFirst + row ? 1u : 0u))
      return std::nullopt;
  }
  Affine result{Dim(inFirst - 1), SmallVector<int64_t>(rank, 0)};
  result.steps[rank - 2] = 1;
  result.steps[rank - 1] = -1;
  return result;
}

} // namespace

bool Affine::isUniform() const {
  return llvm::all_of(steps, [](int64_t step) { return step == 0; });
}

std::optional<Affine> Positions::throughView(Operation *view, const Affine &from) {
  Value source = view->getOperand(0), result = view->getResult(0);
  DimShape before = shapes.of(source), after = shapes.of(result);
  if (llvm::isa<nn::ReshapeOp>(view))
    return reshaped(from, before, after);
  if (llvm::isa<nn::ExpandOp>(view))
    return broadcast(from, before, after.size());
  Affine through{from.base, SmallVector<int64_t>(after.size(), 0)};
  if (auto transpose = llvm::dyn_cast<nn::TransposeOp>(view)) {
    for (auto [to, at] : llvm::enumerate(transpose.getPerm()))
      through.steps[to] = from.steps[at];
    return through;
  }
  auto slice = llvm::cast<nn::SliceOp>(view);
  DimShape starts = nn::dimsFromAttr(slice.getStarts());
  for (size_t i = 0; i < after.size(); ++i) {
    through.base = through.base + starts[i] * Dim(from.steps[i]);
    through.steps[i] = from.steps[i] * slice.getSteps()[i];
  }
  return through;
}

/// left * first operand + right * second operand.
std::optional<Affine> Positions::combined(Operation *binary, int64_t left, int64_t right) {
  auto a = affine(binary->getOperand(0)), b = affine(binary->getOperand(1));
  if (!a || !b)
    return std::nullopt;
  size_t rank = shapes.of(binary->getResult(0)).size();
  Affine first = broadcast(*a, shapes.of(binary->getOperand(0)), rank);
  Affine second = broadcast(*b, shapes.of(binary->getOperand(1)), rank);
  Affine result{first.base * Dim(left) + second.base * Dim(right), SmallVector<int64_t>(rank, 0)};
  for (size_t i = 0; i < rank; ++i)
    result.steps[i] = first.steps[i] * left + second.steps[i] * right;
  return result;
}

std::optional<Affine> Positions::concatenated(nn::ConcatOp concat) {
  int64_t rank = tensorType(concat).getRank(), axis = static_cast<int64_t>(concat.getAxis());
  axis += axis < 0 ? rank : 0;
  // The step along the axis is that of the last part; the others must continue it.
  auto last = affine(concat.getParts().back());
  if (!last)
    return std::nullopt;
  Affine whole = *last;
  Dim offset(0);
  for (Value part : concat.getParts().drop_back())
    offset = offset + shapes.of(part)[axis];
  whole.base = whole.base - offset * Dim(whole.steps[axis]);
  offset = Dim(0);
  for (Value part : concat.getParts()) {
    auto own = affine(part);
    DimShape shape = shapes.of(part);
    if (!own || !(own->base == whole.base + offset * Dim(whole.steps[axis])))
      return std::nullopt;
    for (int64_t i = 0; i < rank; ++i)
      if (own->steps[i] != whole.steps[i] && !(shape[i] == Dim(1)))
        return std::nullopt;
    offset = offset + shape[axis];
  }
  return whole;
}

std::optional<Affine> Positions::affine(Value value) {
  auto found = affines.find(value);
  if (found != affines.end())
    return found->second;
  std::optional<Affine> answer;
  if (isInteger(value) && depth < deepest) {
    ++depth;
    answer = findAffine(value);
    --depth;
  }
  if (answer && !fits(value, *answer))
    answer.reset();
  affines[value] = answer;
  return answer;
}

/// Whether no element wraps around in the value's type. Of types of 32 bits and more it is taken for granted
/// that sizes which are known only when the program runs fit.
bool Positions::fits(Value value, const Affine &affine) {
  auto type = llvm::cast<IntegerType>(elementType(value));
  Dim least = affine.base, most = affine.base;
  for (auto [step, size] : llvm::zip(affine.steps, shapes.of(value))) {
    Dim change = Dim(step) * (size - Dim(1));
    (step < 0 ? least : most) = (step < 0 ? least : most) + change;
  }
  if (type.isUnsigned() && !least.knownNonNegative())
    return false;
  if (type.getWidth() >= 64)
    return true;
  const int64_t bits = type.getWidth() - (type.isUnsigned() || type.getWidth() == 1 ? 0 : 1),
                limit = int64_t{1} << bits;
  auto isKnownIn = [&](const Dim &dim) {
    return dim.isStatic() && dim.value() >= -limit && dim.value() < limit;
  };
  if (least.isStatic() && most.isStatic())
    return isKnownIn(least) && isKnownIn(most);
  return type.getWidth() >= 32;
}

std::optional<Affine> Positions::findAffine(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  size_t rank = static_cast<size_t>(tensorType(value).getRank());
  auto uniform = [&](Dim base) { return Affine{std::move(base), SmallVector<int64_t>(rank, 0)}; };
  if (isBool(value)) {
    auto truth = condition(value);
    if (truth && (truth->never || truth->always()))
      return uniform(Dim(truth->never ? 0 : 1));
    return std::nullopt;
  }
  if (auto constant = constantInteger(value))
    return uniform(Dim(*constant));
  if (auto dims = llvm::dyn_cast<nn::DimConstantOp>(op)) {
    DimShape values = nn::dimsFromAttr(dims.getValues());
    return values.size() == 1 ? std::optional(uniform(values[0])) : std::nullopt;
  }
  if (auto iota = llvm::dyn_cast<nn::IotaOp>(op)) {
    auto start = affine(iota.getStart());
    auto step = constantInteger(iota.getStep());
    return start && step ? std::optional(Affine{start->base, {*step}}) : std::nullopt;
  }
  if (isView(op)) {
    auto from = affine(op->getOperand(0));
    return from ? throughView(op, *from) : std::nullopt;
  }
  if (llvm::isa<nn::AddOp>(op))
    return combined(op, 1, 1);
  if (llvm::isa<nn::SubOp>(op))
    return combined(op, 1, -1);
  if (llvm::isa<nn::CastOp>(op))
    return isInteger(op->getOperand(0)) ? affine(op->getOperand(0)) : std::nullopt;
  if (auto concat = llvm::dyn_cast<nn::ConcatOp>(op))
    return concatenated(concat);
  if (llvm::isa<nn::GatherOp, nn::GatherNdOp, nn::GatherElementsOp>(op)) {
    auto from = affine(op->getOperand(0));
    return from && from->isUniform() ? std::optional(uniform(from->base)) : std::nullopt;
  }
  if (auto sum = llvm::dyn_cast<nn::CumSumOp>(op)) {
    auto from = affine(sum.getX());
    return from && from->isUniform() && from->base == Dim(0) ? from : std::nullopt;
  }
  return std::nullopt;
}

void Positions::addTerm(Condition &condition, Affine term, const DimShape &shape) {
  // The smallest and largest value over all indices; dims are at least 1 where there is an element.
  Dim least = term.base, most = term.base;
  for (size_t i = 0; i < shape.size(); ++i) {
    Dim change = Dim(term.steps[i]) * (shape[i] - Dim(1));
    (term.steps[i] < 0 ? least : most) = (term.steps[i] < 0 ? least : most) + change;
  }
  if (least.knownNonNegative())
    return;
  if ((Dim(-1) - most).knownNonNegative())
    condition.never = true;
  condition.terms.push_back(std::move(term));
}

std::optional<Condition> Positions::condition(Value value) {
  auto found = conditions.find(value);
  if (found != conditions.end())
    return found->second;
  std::optional<Condition> answer;
  if (isInteger(value) && depth < deepest) {
    ++depth;
    answer = findCondition(value);
    --depth;
  }
  conditions[value] = answer;
  return answer;
}

/// a <= b and its relatives as b - a >= 0.
std::optional<Condition> Positions::compared(Operation *comparison) {
  bool swapped = llvm::isa<nn::GreaterOp, nn::GreaterEqualOp>(comparison);
  auto difference = combined(comparison, swapped ? 1 : -1, swapped ? -1 : 1);
  if (!difference)
    return std::nullopt;
  if (llvm::isa<nn::LessOp, nn::GreaterOp>(comparison))
    difference->base = difference->base - Dim(1);
  Condition result;
  if (!llvm::isa<nn::EqualOp>(comparison)) {
    addTerm(result, *difference, shapes.of(comparison->getResult(0)));
    return result;
  }
  if (!difference->isUniform() || !difference->base.isStatic())
    return std::nullopt;
  result.never = difference->base.value() != 0;
  return result;
}

std::optional<Condition> Positions::findCondition(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (auto constant = constantScalar(value))
    return Condition{*constant == 0, {}};
  DimShape shape = shapes.of(value);
  if (auto triangle = lowerTriangle(value)) {
    Condition result;
    addTerm(result, *triangle, shape);
    return result;
  }
  if (llvm::isa<nn::LessOp, nn::LessEqualOp, nn::GreaterOp, nn::GreaterEqualOp, nn::EqualOp>(op))
    return isInteger(op->getOperand(0)) ? compared(op) : std::nullopt;
  if (isView(op)) {
    auto from = condition(op->getOperand(0));
    if (!from)
      return std::nullopt;
    Condition result{from->never, {}};
    for (const Affine &term : from->terms) {
      auto moved = throughView(op, term);
      if (!moved)
        return std::nullopt;
      addTerm(result, *moved, shape);
    }
    return result;
  }
  if (llvm::isa<nn::AndOp>(op) && isBool(value)) {
    auto left = condition(op->getOperand(0)), right = condition(op->getOperand(1));
    if ((left && left->never) || (right && right->never))
      return Condition{true, {}};
    if (!left || !right)
      return std::nullopt;
    Condition result;
    for (auto [side, from] : {std::pair(0u, &*left), std::pair(1u, &*right)})
      for (const Affine &term : from->terms)
        addTerm(result, broadcast(term, shapes.of(op->getOperand(side)), shape.size()), shape);
    return result;
  }
  if (llvm::isa<nn::NotOp>(op) && isBool(value)) {
    auto inner = condition(op->getOperand(0));
    if (!inner || (!inner->never && inner->terms.size() > 1))
      return std::nullopt;
    if (inner->never || inner->always())
      return Condition{inner->always(), {}};
    Affine term = inner->terms.front();
    Affine negated{Dim(-1) - term.base, term.steps};
    for (int64_t &step : negated.steps)
      step = -step;
    Condition result;
    addTerm(result, negated, shape);
    return result;
  }
  if (llvm::isa<nn::CastOp>(op) && isInteger(op->getOperand(0))) {
    if (auto inner = condition(op->getOperand(0)); inner && (isBool(op->getOperand(0)) || isBool(value)))
      return inner;
    auto from = affine(op->getOperand(0));
    if (from && from->isUniform() && from->base.isStatic())
      return Condition{from->base.value() == 0, {}};
    return std::nullopt;
  }
  if (llvm::isa<nn::GatherOp, nn::GatherNdOp, nn::GatherElementsOp>(op)) {
    auto from = condition(op->getOperand(0));
    return from && (from->never || from->always()) ? from : std::nullopt;
  }
  return std::nullopt;
}

} // namespace fusion
