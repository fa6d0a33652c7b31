#include "passes/raise/BatchNormRows.h"

#include "passes/raise/NormTail.h"

using namespace mlir;

namespace fusion::raise {

namespace {

/// The statistics of the rows of `input`, which `rows` are in another shape.
struct RowStatistics {
  Value input, rows, mean;
  float eps = 0;
};

/// The axes are all but those of the rows: of the dims that are not 1, the last one, which is that of
/// `input`.
bool reducesRows(nn::ReduceOp reduce, const DimShape &rows, const Dim &size) {
  std::optional<size_t> last;
  for (size_t i = 0; i < rows.size(); ++i)
    if (!(rows[i] == Dim(1)))
      last = i;
  if (!last || !(rows[*last] == size))
    return false;
  SmallVector<bool> reduced(rows.size(), false);
  for (int64_t axis : reduce.getAxes())
    reduced[axis < 0 ? axis + static_cast<int64_t>(rows.size()) : axis] = true;
  for (size_t i = 0; i < rows.size(); ++i)
    if (reduced[i] != (i == *last) && !(rows[i] == Dim(1)))
      return false;
  return true;
}

std::optional<RowStatistics> matchRowStatistics(nn::RsqrtOp inverse, ShapeTable &shapes) {
  RowStatistics found;
  Value variance = inverse.getX();
  if (auto offset = matchAddConstant(variance)) {
    found.eps = static_cast<float>(offset->constant);
    variance = offset->value;
  }
  auto quotient = variance.getDefiningOp<nn::DivOp>();
  auto sum = quotient ? quotient.getLhs().getDefiningOp<nn::ReduceOp>() : nn::ReduceOp();
  auto centred = sum && sum.getKind() == "sum_square" ? sum.getX().getDefiningOp<nn::SubOp>() : nn::SubOp();
  auto reshape = centred ? centred.getLhs().getDefiningOp<nn::ReshapeOp>() : nn::ReshapeOp();
  auto mean = centred ? centred.getRhs().getDefiningOp<nn::ReduceOp>() : nn::ReduceOp();
  if (!reshape || !mean || mean.getKind() != "mean" || !mean.getKeepdims() || mean.getX() != reshape)
    return std::nullopt;
  found.input = reshape.getX();
  found.rows = reshape;
  found.mean = mean;
  const DimShape rows = shapes.of(found.rows), input = shapes.of(found.input);
  if (input.empty() || !input.back().isStatic() ||
      constantScalar(quotient.getRhs()) != input.back().value() || !reducesRows(sum, rows, input.back()) ||
      !reducesRows(mean, rows, input.back()))
    return std::nullopt;
  return found;
}

/// x of a reshape that lays a number of each row over the rows, which have the shape `overRows` then.
Value beforeLayingOver(Value value, DimShape overRows, ShapeTable &shapes) {
  auto reshape = value.getDefiningOp<nn::ReshapeOp>();
  if (!reshape)
    return {};
  const DimShape shape = shapes.of(reshape);
  while (overRows.size() > shape.size() && overRows.front() == Dim(1))
    overRows.erase(overRows.begin());
  return shape == overRows ? Value(reshape.getX()) : Value();
}

/// x of -x, which a batch normalisation with a bias of zeros writes as 0 - x.
Value negated(Value value) {
  if (auto neg = value.getDefiningOp<nn::NegOp>())
    return neg.getX();
  auto sub = value.getDefiningOp<nn::SubOp>();
  return sub && isConstant(sub.getLhs(), 0) ? Value(sub.getRhs()) : Value();
}

/// `value` is -mean * inverse of each row.
bool isShift(Value value, nn::RsqrtOp inverse, const RowStatistics &stats, ShapeTable &shapes) {
  Value opposite = negated(value);
  auto product = opposite ? opposite.getDefiningOp<nn::MulOp>() : nn::MulOp();
  Value mean = product ? otherOperand(product, inverse) : Value();
  auto flat = mean ? mean.getDefiningOp<nn::ReshapeOp>() : nn::ReshapeOp();
  return flat && flat.getX() == stats.mean && shapes.same(flat, inverse);
}

/// rows * inverse + shift, put into a shape whose last dim is a row, as that of the input is.
nn::ReshapeOp matchNormalised(nn::ReshapeOp laidOver, nn::RsqrtOp inverse, const RowStatistics &stats,
                              ShapeTable &shapes) {
  const DimShape overRows = shapes.of(stats.mean);
  auto scaled = onlyUserAs<nn::MulOp>(laidOver);
  auto shifted = scaled ? onlyUserAs<nn::AddOp>(scaled) : nn::AddOp();
  if (beforeLayingOver(laidOver, overRows, shapes) != Value(inverse) || !shifted ||
      otherOperand(scaled, laidOver) != stats.rows)
    return {};
  Value other = otherOperand(shifted, scaled);
  Value shift = other ? beforeLayingOver(other, overRows, shapes) : Value();
  auto back = onlyUserAs<nn::ReshapeOp>(shifted);
  return shift && isShift(shift, inverse, stats, shapes) && back &&
                 shapes.of(back).back() == shapes.of(stats.input).back()
             ? back
             : nn::ReshapeOp();
}

} // namespace

void raiseBatchNormRows(nn::RsqrtOp inverse, Raiser &raiser) {
  auto stats = matchRowStatistics(inverse, raiser.shapes);
  if (!stats)
    return;
  constexpr StringLiteral name = "layer_norm";
  if (!isF32(stats->input))
    return noteMiss(inverse, name, "statistics are computed in " + typeName(stats->input) + ", not in f32");
  for (Operation *user : llvm::to_vector(inverse->getUsers()))
    if (auto laidOver = llvm::dyn_cast<nn::ReshapeOp>(user))
      if (auto normalised = matchNormalised(laidOver, inverse, *stats, raiser.shapes)) {
        raiser.rewriter.setInsertionPoint(normalised);
        Value input = stats->input;
        if (!raiser.shapes.same(input, normalised))
          input = nn::buildReshape(raiser.rewriter, normalised.getLoc(), input, raiser.shapes.of(normalised));
        return buildNorm(walkTail(normalised, true, raiser.shapes), input, stats->eps, true, raiser);
      }
  noteMiss(inverse, name,
           "the rows are not shifted by their mean and put into a shape whose last dim is a row");
}

} // namespace fusion::raise
