// How axes go through each op when a graph is divided among ranks.
#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion::nn {

std::string siteOf(Operation *op) {
  std::string name = locationName(op->getLoc());
  return op->getName().getStringRef().str() + (name.empty() ? "" : " at " + name);
}

bool isShardLeaf(Operation *op) {
  if (auto slice = llvm::dyn_cast_or_null<SliceOp>(op))
    op = slice.getX().getDefiningOp();
  return isStored(op);
}

static unsigned positive(int64_t axis, unsigned rank) {
  return static_cast<unsigned>(axis < 0 ? axis + rank : axis);
}

void ShardAxes::allWhole(Operation *op) {
  const std::string reason = siteOf(op) + " needs it whole";
  for (Value value : op->getOperands())
    for (unsigned axis = 0; axis < rank(value); ++axis)
      whole(value, axis, reason);
  for (Value value : op->getResults())
    for (unsigned axis = 0; axis < rank(value); ++axis)
      whole(value, axis, reason);
}

void ShardAxes::broadcast(Value operand, Value result) {
  const unsigned inner = rank(operand), outer = rank(result);
  for (unsigned axis = 0; axis < inner; ++axis) {
    const unsigned meets = axis + outer - inner;
    if (shape(operand)[axis] == Dim(1) && !(shape(result)[meets] == Dim(1)))
      continue;
    link(operand, axis, result, meets);
  }
}

void ShardAxes::allBut(Operation *op, int64_t axis) {
  Value x = op->getOperand(0), y = op->getResult(0);
  for (unsigned i = 0; i < rank(x); ++i)
    link(x, i, y, i);
  whole(x, positive(axis, rank(x)), siteOf(op) + " needs it whole");
}

void shardElementwise(Operation *op, ShardAxes &axes) {
  for (Value operand : op->getOperands())
    axes.broadcast(operand, op->getResult(0));
}

// Any part can be taken from them.
void ConstantOp::shardAxes(ShardAxes &) {}
void WeightOp::shardAxes(ShardAxes &) {}

void SoftmaxOp::shardAxes(ShardAxes &axes) { axes.allBut(*this, getAxis()); }
void CumSumOp::shardAxes(ShardAxes &axes) { axes.allBut(*this, getAxis()); }

void MatmulOp::shardAxes(ShardAxes &axes) {
  Value a = getA(), b = getB(), y = getY();
  const unsigned ranks[] = {axes.rank(a), axes.rank(b)};
  if (ranks[0] < 2 || ranks[1] < 2)
    return axes.allWhole(*this);
  const unsigned rowsOfA = ranks[0] - (getTransposeA() ? 1 : 2),
                 sumOfA = ranks[0] - (getTransposeA() ? 2 : 1);
  const unsigned sumOfB = ranks[1] - (getTransposeB() ? 1 : 2),
                 columnsOfB = ranks[1] - (getTransposeB() ? 2 : 1);
  const unsigned rank = axes.rank(y);
  axes.link(a, rowsOfA, y, rank - 2);
  axes.link(b, columnsOfB, y, rank - 1);
  axes.link(a, sumOfA, b, sumOfB);
  for (Value operand : {a, b}) // leading dims broadcast
    for (unsigned axis = 0; axis + 2 < axes.rank(operand); ++axis) {
      const unsigned meets = axis + rank - axes.rank(operand);
      if (!(axes.shape(operand)[axis] == Dim(1)) || axes.shape(y)[meets] == Dim(1))
        axes.link(operand, axis, y, meets);
    }
  axes.contracted(a, sumOfA, *this);
  if (axes.isParameter(b) && !axes.isParameter(a))
    axes.columns(y, rank - 1, *this);
}

void ExpertMatmulOp::shardAxes(ShardAxes &axes) {
  Value x = getX(), w = getW(), index = getIndex(), y = getY();
  const unsigned rank = axes.rank(y), sumOfX = rank - 1, sumOfW = getTransposeW() ? 2 : 1,
                 columnsOfW = 3 - sumOfW;
  for (unsigned axis = 0; axis + 1 < rank; ++axis) {
    axes.link(index, axis, y, axis);
    if (axis + 2 < rank || !(axes.shape(x)[axis] == Dim(1)) || axes.shape(y)[axis] == Dim(1))
      axes.link(x, axis, y, axis);
  }
  axes.whole(w, 0, siteOf(*this) + " may read any expert");
  axes.link(x, sumOfX, w, sumOfW);
  axes.link(w, columnsOfW, y, rank - 1);
  axes.contracted(x, sumOfX, *this);
  if (axes.isParameter(w) && !axes.isParameter(x))
    axes.columns(y, rank - 1, *this);
}

void LinearAttentionOp::shardAxes(ShardAxes &axes) {
  constexpr unsigned batch = 0, heads = 1, tokens = 2, width = 3;
  Value q = getQ(), k = getK(), v = getV(), state = getState(), y = getY();
  for (Value operand : getOperands()) {
    axes.link(operand, batch, y, batch);
    for (unsigned axis : {tokens, width}) // of the state: its rows and columns
      if (!(axes.shape(operand)[axis] == Dim(1)))
        axes.whole(operand, axis, siteOf(*this) + " needs it whole");
  }
  for (unsigned axis : {tokens, width})
    axes.whole(y, axis, siteOf(*this) + " needs it whole");
  for (unsigned axis = 0; axis < 4; ++axis)
    axes.link(state, axis, getNewState(), axis);
  axes.link(v, heads, state, heads);
  axes.heads(v, k, heads);
  const bool moreQueries = axes.shape(q)[heads] == axes.shape(y)[heads];
  axes.link(moreQueries ? q : v, heads, y, heads);
  if (moreQueries)
    axes.heads(q, v, heads);
  else
    axes.heads(v, q, heads);
  for (Value operand : {getDecay(), getBeta()})
    if (operand && !(axes.shape(operand)[heads] == Dim(1)))
      axes.link(operand, heads, v, heads);
}

void AttentionOp::shardAxes(ShardAxes &axes) {
  constexpr unsigned batch = 0, heads = 1, tokens = 2, width = 3;
  Value q = getQ(), k = getK(), v = getV(), y = getY();
  for (unsigned axis : {batch, heads, tokens})
    axes.link(q, axis, y, axis);
  axes.link(k, batch, q, batch);
  axes.link(v, batch, q, batch);
  axes.link(k, heads, v, heads);
  axes.heads(q, k, heads);
  axes.link(k, tokens, v, tokens);
  axes.link(v, width, y, width);
  axes.link(q, width, k, width);
  axes.whole(q, width, siteOf(*this) + " sums over it");
  axes.whole(v, width, siteOf(*this) + " keeps the width of a head whole");
  axes.whole(k, tokens, siteOf(*this) + " sums over it");
  Value mask = getMask();
  if (!mask)
    return;
  const unsigned missing = 4 - axes.rank(mask);
  for (unsigned axis = 0; axis < axes.rank(mask); ++axis) {
    const unsigned meets = axis + missing;
    if (axes.shape(mask)[axis] == Dim(1))
      continue;
    if (meets == width)
      axes.link(mask, axis, k, tokens);
    else
      axes.link(mask, axis, q, meets);
  }
}

void RopeOp::shardAxes(ShardAxes &axes) {
  Value x = getX(), y = getY();
  for (unsigned axis = 0; axis < axes.rank(x); ++axis)
    axes.link(x, axis, y, axis);
  const std::string reason = siteOf(*this) + " rotates pairs along it";
  axes.whole(x, axes.rank(x) - 1, reason);
  for (Value table : {getCos(), getSin()}) {
    axes.whole(table, axes.rank(table) - 1, reason);
    for (unsigned axis = 0; axis + 1 < axes.rank(table); ++axis)
      if (!(axes.shape(table)[axis] == Dim(1)))
        axes.link(table, axis, x, axis + axes.rank(x) - axes.rank(table));
  }
}

/// Of a norm: its operand with its result; the last axis is what it normalises over.
static void shardNorm(Norm op, ShardAxes &axes, bool dividesRows) {
  Value x = op.getX(), y = op->getResult(0);
  for (unsigned axis = 0; axis < axes.rank(x); ++axis)
    axes.link(x, axis, y, axis);
  if (dividesRows && axes.rank(x) > 0 && !elementType(x).isF64())
    axes.normalised(x, axes.rank(x) - 1, op);
  else
    axes.whole(x, axes.rank(x) - 1, siteOf(op) + " normalises over it");
  for (Value parameter : op.getParameters())
    axes.broadcast(parameter, y);
}
void RmsNormOp::shardAxes(ShardAxes &axes) { shardNorm(*this, axes, /*dividesRows=*/true); }
void LayerNormOp::shardAxes(ShardAxes &axes) { shardNorm(*this, axes, /*dividesRows=*/false); }

// A scale is a scalar, or one entry for each index of an axis, or one for each block along it.
static void shardScaled(Operation *op, ShardAxes &axes, int64_t axis, int64_t blockSize) {
  Value x = op->getOperand(0), y = op->getResult(0);
  const unsigned rank = axes.rank(x);
  for (unsigned i = 0; i < rank; ++i)
    axes.link(x, i, y, i);
  for (Value parameter : llvm::drop_begin(op->getOperands())) {
    const DimShape &shape = axes.shape(parameter);
    if (shape.empty() || (shape.size() == 1 && shape[0] == Dim(1)))
      continue;
    if (blockSize > 0 && shape.size() == rank)
      for (unsigned i = 0; i < rank; ++i)
        axes.link(parameter, i, x, i);
    else if (shape.size() == 1)
      axes.link(parameter, 0, x, positive(axis, rank));
    else
      return axes.allWhole(op);
  }
}
void QuantizeOp::shardAxes(ShardAxes &axes) { shardScaled(*this, axes, getAxis(), getBlockSize()); }
void DequantizeOp::shardAxes(ShardAxes &axes) { shardScaled(*this, axes, getAxis(), getBlockSize()); }

void ReduceOp::shardAxes(ShardAxes &axes) {
  Value x = getX(), y = getY();
  const unsigned rank = axes.rank(x);
  unsigned to = 0;
  for (unsigned axis = 0; axis < rank; ++axis) {
    const bool reduced = llvm::any_of(getAxes(), [&](int64_t at) { return positive(at, rank) == axis; });
    if (reduced)
      axes.whole(x, axis, siteOf(*this) + " reduces it");
    else
      axes.link(x, axis, y, to);
    to += !reduced || getKeepdims();
  }
}

// Ranks tell each other places as f32.
void ArgMaxOp::shardAxes(ShardAxes &axes) {
  constexpr int64_t mostExact = 1 << 24;
  Value x = getX(), y = getY();
  const unsigned rank = axes.rank(x), along = positive(static_cast<int64_t>(getAxis()), rank);
  for (unsigned axis = 0, to = 0; axis < rank; ++axis) {
    if (axis != along)
      axes.link(x, axis, y, to);
    to += axis != along || getKeepdims();
  }
  const Type type = elementType(x);
  if (along + 1 == rank && llvm::isa<FloatType>(type) && type.getIntOrFloatBitWidth() <= 32 &&
      axes.shape(x)[along].constant().value_or(INT64_MAX) <= mostExact)
    axes.largest(x, along, *this);
  else
    axes.whole(x, along, siteOf(*this) + " finds the largest along it");
}

void TransposeOp::shardAxes(ShardAxes &axes) {
  for (auto [to, from] : llvm::enumerate(getPerm()))
    axes.link(getX(), static_cast<unsigned>(from), getY(), static_cast<unsigned>(to));
}

void CacheWriteOp::shardAxes(ShardAxes &axes) {
  const unsigned written = positive(getAxis(), axes.rank(getY()));
  const std::string reason = siteOf(*this) + " writes at any place along it";
  for (Value operand : getOperands())
    for (unsigned axis = 0; axis < axes.rank(operand); ++axis)
      if (axis == written)
        axes.whole(operand, axis, reason);
      else if (!(axes.shape(operand)[axis] == Dim(1)) || axes.shape(getY())[axis] == Dim(1))
        axes.link(operand, axis, getY(), axis);
  axes.whole(getY(), written, reason);
}

void ConcatOp::shardAxes(ShardAxes &axes) {
  const unsigned joined = positive(getAxis(), axes.rank(getY()));
  const std::string reason = siteOf(*this) + " joins parts along it";
  for (Value part : getParts())
    for (unsigned axis = 0; axis < axes.rank(part); ++axis)
      if (axis == joined)
        axes.whole(part, axis, reason);
      else
        axes.link(part, axis, getY(), axis);
  axes.whole(getY(), joined, reason);
}

void SliceOp::shardAxes(ShardAxes &axes) {
  if (isShardLeaf(*this))
    return;
  const DimShape starts = dimsFromAttr(getStarts());
  Value x = getX(), y = getY();
  for (unsigned axis = 0; axis < axes.rank(x); ++axis)
    if (starts[axis] == Dim(0) && getSteps()[axis] == 1 && axes.shape(x)[axis] == axes.shape(y)[axis]) {
      axes.link(x, axis, y, axis);
    } else {
      axes.whole(x, axis, siteOf(*this) + " takes a part of it");
      axes.whole(y, axis, siteOf(*this) + " takes a part of it");
    }
}

void GatherOp::shardAxes(ShardAxes &axes) {
  Value x = getX(), indices = getIndices(), y = getY();
  const unsigned rank = axes.rank(x), axis = positive(getAxis(), rank), looked = axes.rank(indices);
  if (axis == 0 && rank == 2 && axes.isParameter(x) && !axes.isParameter(indices))
    axes.lookedUp(x, axis, *this);
  else
    axes.whole(x, axis, siteOf(*this) + " looks up along it");
  for (unsigned i = 0; i < axis; ++i)
    axes.link(x, i, y, i);
  for (unsigned i = 0; i < looked; ++i)
    axes.link(indices, i, y, axis + i);
  for (unsigned i = axis + 1; i < rank; ++i)
    axes.link(x, i, y, i + looked - 1);
}

namespace {
/// A run of dims of x and one of y with equal products.
struct Run {
  unsigned beginX, endX, beginY, endY;
  bool equal; ///< false: no way was found to make the products equal, and the run goes to the end
};

/// The next run from (i, j) on. The side whose product divides the other's grows.
Run nextRun(const DimShape &x, const DimShape &y, unsigned i, unsigned j) {
  const unsigned inner = static_cast<unsigned>(x.size()), outer = static_cast<unsigned>(y.size());
  Run run{i, i, j, j, true};
  Dim left = run.endX < inner ? x[run.endX++] : Dim(1);
  Dim right = run.endY < outer ? y[run.endY++] : Dim(1);
  while (!(left == right)) {
    if (run.endX < inner && (run.endY == outer || right.dividedBy(left).has_value()))
      left = left * x[run.endX++];
    else if (run.endY < outer)
      right = right * y[run.endY++];
    else
      return {i, inner, j, outer, false};
  }
  return run;
}

/// The first dim of a run that is not 1.
unsigned majorOf(const DimShape &shape, unsigned begin, unsigned end) {
  while (begin + 1 < end && shape[begin] == Dim(1))
    ++begin;
  return begin;
}
} // namespace

// Dims in runs of equal product: of each run the major dims (1 aside) are divided together; the others stay
// whole, unless the run is one dim on both sides.
void ReshapeOp::shardAxes(ShardAxes &axes) {
  Value x = getX(), y = getY();
  const DimShape &from = axes.shape(x), &to = axes.shape(y);
  for (unsigned i = 0, j = 0; i < from.size() || j < to.size();) {
    const Run run = nextRun(from, to, i, j);
    const unsigned majorX = majorOf(from, run.beginX, run.endX), majorY = majorOf(to, run.beginY, run.endY);
    if (run.equal && run.beginX < run.endX && run.beginY < run.endY)
      axes.link(x, majorX, y, majorY);
    const std::string reason = siteOf(*this) + (run.equal ? " splits it as a minor dim" : " regroups it");
    for (unsigned axis = run.beginX; axis < run.endX; ++axis)
      if (!run.equal || (axis != majorX && !(from[axis] == Dim(1))))
        axes.whole(x, axis, reason);
    for (unsigned axis = run.beginY; axis < run.endY; ++axis)
      if (!run.equal || (axis != majorY && !(to[axis] == Dim(1))))
        axes.whole(y, axis, reason);
    i = run.endX;
    j = run.endY;
  }
}

} // namespace fusion::nn
