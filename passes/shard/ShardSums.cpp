// What ranks compute of an op when each has a part of what it reads.
#include "passes/shard/Sharder.h"

#include "ir/base/BindSymbols.h"
#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"
#include "passes/MissLog.h"

#include <numeric>

using namespace mlir;

namespace fusion {

Value Sharder::scalar(Location location, Type elementType, double value) {
  Value constant = nn::buildScalar(builder, location, elementType, value);
  local[constant] = {};
  return constant;
}

Value Sharder::count(Location location, Type elementType, const Dim &dim) {
  Value made = nn::DimConstantOp::create(builder, location, RankedTensorType::get({}, elementType),
                                         nn::dimsToAttr(builder.getContext(), dim));
  local[made] = {};
  return made;
}

Value Sharder::cast(Location location, Value value, Type type) {
  return value && fusion::elementType(value) != type ? apply<nn::CastOp>(location, value, type) : value;
}

Value Sharder::sumOverRanks(Operation *whole, Value part) {
  if (!part)
    return {};
  noteRaised(whole, "shard");
  return apply<nn::AllReduceOp>(whole->getLoc(), part, elementType(part));
}

// Pattern: gather(table, ids) -> all_reduce(where(0 <= i < n, gather(shard, i), 0)) with i = ids - tp_rank *
// n An id that no rank has gives zeros.
Value Sharder::lookUpRows(nn::GatherOp op) {
  Location at = op.getLoc();
  Value ids = op.getIndices();
  Type index = elementType(ids), element = elementType(op.getY()), truth = builder.getI1Type();
  const Dim rows = local[op.getX()].front();
  auto count = [&](const Dim &dim) { return this->count(at, index, dim); };
  Value zero = scalar(at, index, 0);
  Value fromEnd = apply<nn::AddOp>(at, {ids, count(rows * Dim(ranks))}, index); // of a negative id
  Value row = apply<nn::WhereOp>(at, {apply<nn::LessOp>(at, {ids, zero}, truth), fromEnd, ids}, index);
  row = apply<nn::SubOp>(at, {row, count(Dim::symbol(std::string(rankSymbol)) * rows)}, index);
  Value here = apply<nn::AndOp>(at,
                                {apply<nn::GreaterEqualOp>(at, {row, zero}, truth),
                                 apply<nn::LessOp>(at, {row, count(rows)}, truth)},
                                truth);
  row = apply<nn::WhereOp>(at, {here, row, zero}, index);
  Value found = apply<nn::GatherOp>(at, {op.getX(), row}, element, op->getAttrs());
  DimShape column = local[ids];
  column.push_back(1);
  here = apply<nn::ReshapeOp>(at, here, truth,
                              builder.getNamedAttr("shape", nn::dimsToAttr(builder.getContext(), column)));
  return sumOverRanks(op, apply<nn::WhereOp>(at, {here, found, scalar(at, element, 0)}, element));
}

// Pattern: rms_norm(x, w) -> R(S(x * rsqrt(all_reduce(sum(x * x)) / width + eps)) * S(w + bias)), in f32
Value Sharder::normaliseShard(nn::RmsNormOp op) {
  Location at = op.getLoc();
  Type f32 = builder.getF32Type(), scale = op.scaleType();
  auto cast = [&](Value value, Type type) { return this->cast(at, value, type); };
  const auto axis = static_cast<int64_t>(local[op.getX()].size()) - 1;
  Value x = cast(op.getX(), f32);
  Value sum = apply<nn::ReduceOp>(at, x, f32,
                                  {builder.getNamedAttr("kind", builder.getStringAttr("sum_square")),
                                   builder.getNamedAttr("axes", builder.getDenseI64ArrayAttr(axis)),
                                   builder.getNamedAttr("keepdims", builder.getBoolAttr(true))});
  const auto width = static_cast<double>(shapes[op.getY()].back().value());
  Value mean = apply<nn::DivOp>(at, {sumOverRanks(op, sum), scalar(at, f32, width)}, f32);
  Value shifted = apply<nn::AddOp>(at, {mean, scalar(at, f32, op.getEps().convertToFloat())}, f32);
  Value normed = apply<nn::MulOp>(at, {x, apply<nn::RsqrtOp>(at, shifted, f32)}, f32);
  Value weight = cast(op.getWeight(), f32);
  if (!op.getWeightBias().isZero())
    weight = apply<nn::AddOp>(at, {weight, scalar(at, f32, op.getWeightBias().convertToFloat())}, f32);
  auto rounded = [&](Value value) { return cast(cast(value, scale), f32); };
  return cast(apply<nn::MulOp>(at, {rounded(normed), rounded(weight)}, f32), elementType(op.getY()));
}

// Pattern: arg_max(x) -> each rank's largest and its place, side by side by all_reduce of zeros in the
// others' columns, then the place of the largest of these. Shards are in order, and so the first of equal
// ones is.
Value Sharder::largestOfRanks(nn::ArgMaxOp op) {
  Location at = op.getLoc();
  Value x = op.getX();
  Type f32 = builder.getF32Type(), i64 = builder.getI64Type();
  const int64_t axis = static_cast<int64_t>(local[x].size()) - 1;
  const Dim columns = local[x].back(), rank = Dim::symbol(std::string(rankSymbol));
  const NamedAttribute along = builder.getNamedAttr("axis", builder.getI64IntegerAttr(axis));
  auto place = [&](Value of) {
    return apply<nn::ArgMaxOp>(at, of, i64,
                               {along, builder.getNamedAttr("keepdims", builder.getBoolAttr(true))});
  };
  auto taken = [&](Value of, Value where) {
    return apply<nn::GatherElementsOp>(at, {of, where}, elementType(of), along);
  };
  SmallVector<int64_t> numbers(static_cast<size_t>(ranks));
  std::iota(numbers.begin(), numbers.end(), int64_t(0));
  Value all = nn::buildConstant(
      builder, at, DenseElementsAttr::get(RankedTensorType::get({ranks}, i64), ArrayRef(numbers)));
  local[all] = {Dim(ranks)};
  Value isMine = apply<nn::EqualOp>(at, {all, count(at, i64, rank)}, builder.getI1Type());
  auto inOwnColumn = [&](Value value) {
    return apply<nn::WhereOp>(at, {isMine, cast(at, value, f32), scalar(at, f32, 0)}, f32);
  };
  Value own = place(x);
  Value number = apply<nn::AddOp>(at, {own, count(at, i64, rank * columns)}, i64);
  Value told = sumOverRanks(
      op, apply<nn::ConcatOp>(at, {inOwnColumn(taken(x, own)), inOwnColumn(number)}, f32, along));
  if (!told)
    return {};
  auto half = [&](int64_t first) {
    DimShape starts(local[told].size(), Dim(0)), sizes = local[told];
    starts.back() = Dim(first);
    sizes.back() = Dim(ranks);
    return slice(at, told, starts, sizes);
  };
  Value found = cast(at, taken(half(ranks), place(half(0))), elementType(op.getY()));
  return apply<nn::ReshapeOp>(
      at, found, elementType(found),
      builder.getNamedAttr("shape", nn::dimsToAttr(builder.getContext(), shapes[op.getY()])));
}

} // namespace fusion
