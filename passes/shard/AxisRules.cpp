#include "passes/shard/AxisClasses.h"

#include "ir/dialect/Types.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace fusion {

std::string siteOf(Operation *op) {
  std::string name = locationName(op->getLoc());
  return op->getName().getStringRef().str() + (name.empty() ? "" : " at " + name);
}

namespace {
unsigned positive(int64_t axis, unsigned rank) {
  return static_cast<unsigned>(axis < 0 ? axis + rank : axis);
}
} // namespace

void AxisRules::link(Value left, unsigned leftAxis, Value right, unsigned rightAxis) {
  classes.joined.unionSets(classes.node(left, leftAxis), classes.node(right, rightAxis));
}

void AxisRules::whole(Value value, unsigned axis, const std::string &reason) {
  classes.wholes.push_back({classes.node(value, axis), reason});
}

void AxisRules::allWhole(Operation *op) {
  const std::string reason = siteOf(op) + " needs it whole";
  for (Value value : op->getOperands())
    for (unsigned axis = 0; axis < rank(value); ++axis)
      whole(value, axis, reason);
  for (Value value : op->getResults())
    for (unsigned axis = 0; axis < rank(value); ++axis)
      whole(value, axis, reason);
}

void AxisRules::broadcast(Value operand, Value result) {
  const unsigned inner = rank(operand), outer = rank(result);
  for (unsigned axis = 0; axis < inner; ++axis) {
    const unsigned meets = axis + outer - inner;
    if (shape(operand)[axis] == Dim(1) && !(shape(result)[meets] == Dim(1)))
      continue;
    link(operand, axis, result, meets);
  }
}

void AxisRules::along(Operation *op, int64_t axis) {
  Value x = op->getOperand(0), y = op->getResult(0);
  for (unsigned i = 0; i < rank(x); ++i)
    link(x, i, y, i);
  whole(x, positive(axis, rank(x)), siteOf(op) + " needs it whole");
}

void AxisRules::visit(Operation *op) {
  if (op->hasTrait<nn::Pointwise>()) {
    for (Value operand : op->getOperands())
      broadcast(operand, op->getResult(0));
    return;
  }
  llvm::TypeSwitch<Operation *>(op)
      .Case<nn::ConstantOp, nn::WeightOp>([](Operation *) {}) // any piece can be taken from them
      .Case([&](nn::MatmulOp matmulOp) { matmul(matmulOp); })
      .Case([&](nn::AttentionOp attentionOp) { attention(attentionOp); })
      .Case([&](nn::RopeOp ropeOp) { rope(ropeOp); })
      .Case<nn::RmsNormOp, nn::LayerNormOp>([&](Operation *normOp) { norm(normOp); })
      .Case([&](nn::ReshapeOp reshapeOp) { reshape(reshapeOp); })
      .Case([&](nn::SliceOp sliceOp) { slice(sliceOp); })
      .Case([&](nn::GatherOp gatherOp) { gather(gatherOp); })
      .Case([&](nn::TransposeOp transpose) {
        for (auto [to, from] : llvm::enumerate(transpose.getPerm()))
          link(transpose.getX(), static_cast<unsigned>(from), transpose.getY(), static_cast<unsigned>(to));
      })
      .Case([&](nn::ExpandOp expand) { broadcast(expand.getX(), expand.getY()); })
      .Case([&](nn::ConcatOp concat) {
        const unsigned axis = positive(concat.getAxis(), rank(concat.getY()));
        for (Value part : concat.getParts())
          for (unsigned i = 0; i < rank(part); ++i)
            if (i == axis)
              whole(part, i, siteOf(concat) + " joins parts along it");
            else
              link(part, i, concat.getY(), i);
        whole(concat.getY(), axis, siteOf(concat) + " joins parts along it");
      })
      .Case([&](nn::SoftmaxOp softmax) { along(softmax, softmax.getAxis()); })
      .Case([&](nn::CumSumOp cumsum) { along(cumsum, cumsum.getAxis()); })
      .Case([&](nn::ReduceOp reduce) {
        unsigned to = 0;
        for (unsigned axis = 0; axis < rank(reduce.getX()); ++axis) {
          bool reduced =
              llvm::is_contained(reduce.getAxes(), static_cast<int64_t>(axis)) ||
              llvm::is_contained(reduce.getAxes(), static_cast<int64_t>(axis) - rank(reduce.getX()));
          if (reduced)
            whole(reduce.getX(), axis, siteOf(reduce) + " reduces it");
          else
            link(reduce.getX(), axis, reduce.getY(), to);
          to += !reduced || reduce.getKeepdims();
        }
      })
      .Case([&](nn::QuantizeOp quantize) { scaled(quantize, quantize.getAxis(), quantize.getBlockSize()); })
      .Case([&](nn::DequantizeOp dequantize) {
        scaled(dequantize, dequantize.getAxis(), dequantize.getBlockSize());
      })
      .Default([&](Operation *other) { allWhole(other); });
}

void AxisRules::matmul(nn::MatmulOp op) {
  Value a = op.getA(), b = op.getB(), y = op.getY();
  const unsigned ranks[] = {rank(a), rank(b)};
  if (ranks[0] < 2 || ranks[1] < 2)
    return allWhole(op);
  const unsigned rowsOfA = ranks[0] - (op.getTransposeA() ? 1 : 2),
                 sumOfA = ranks[0] - (op.getTransposeA() ? 2 : 1);
  const unsigned sumOfB = ranks[1] - (op.getTransposeB() ? 1 : 2),
                 columnsOfB = ranks[1] - (op.getTransposeB() ? 2 : 1);
  link(a, rowsOfA, y, rank(y) - 2);
  link(b, columnsOfB, y, rank(y) - 1);
  link(a, sumOfA, b, sumOfB);
  for (Value operand : {a, b}) // leading dims broadcast
    for (unsigned axis = 0; axis + 2 < rank(operand); ++axis) {
      const unsigned meets = axis + rank(y) - rank(operand);
      if (!(shape(operand)[axis] == Dim(1)) || shape(y)[meets] == Dim(1))
        link(operand, axis, y, meets);
    }
  classes.sums.push_back({classes.node(a, sumOfA), op});
  if (classes.isParameter(b) && !classes.isParameter(a))
    classes.columns.push_back({classes.node(y, rank(y) - 1), op});
}

void AxisRules::attention(nn::AttentionOp op) {
  constexpr unsigned batch = 0, heads = 1, tokens = 2, width = 3;
  Value q = op.getQ(), k = op.getK(), v = op.getV(), y = op.getY();
  for (unsigned axis : {batch, heads, tokens})
    link(q, axis, y, axis);
  link(k, batch, q, batch);
  link(v, batch, q, batch);
  link(k, heads, v, heads);
  classes.heads.push_back(classes.node(q, heads));
  classes.heads.push_back(classes.node(k, heads));
  link(k, tokens, v, tokens);
  link(v, width, y, width);
  link(q, width, k, width);
  whole(q, width, siteOf(op) + " sums over it");
  whole(v, width, siteOf(op) + " keeps the width of a head whole");
  whole(k, tokens, siteOf(op) + " sums over it");
  if (shape(k)[heads] == shape(q)[heads])
    link(k, heads, q, heads);
  else
    classes.followers.push_back({classes.node(k, heads), classes.node(q, heads)});
  if (Value mask = op.getMask()) {
    const unsigned missing = 4 - rank(mask);
    for (unsigned axis = 0; axis < rank(mask); ++axis) {
      const unsigned meets = axis + missing;
      if (shape(mask)[axis] == Dim(1))
        continue;
      if (meets == width)
        link(mask, axis, k, tokens);
      else
        link(mask, axis, q, meets);
    }
  }
}

void AxisRules::rope(nn::RopeOp op) {
  Value x = op.getX(), y = op.getY();
  for (unsigned axis = 0; axis < rank(x); ++axis)
    link(x, axis, y, axis);
  whole(x, rank(x) - 1, siteOf(op) + " rotates pairs along it");
  for (Value table : {op.getCos(), op.getSin()}) {
    whole(table, rank(table) - 1, siteOf(op) + " rotates pairs along it");
    for (unsigned axis = 0; axis + 1 < rank(table); ++axis) {
      const unsigned meets = axis + rank(x) - rank(table);
      if (!(shape(table)[axis] == Dim(1)))
        link(table, axis, x, meets);
    }
  }
}

void AxisRules::norm(Operation *op) {
  Value x = op->getOperand(0), y = op->getResult(0);
  for (unsigned axis = 0; axis < rank(x); ++axis)
    link(x, axis, y, axis);
  if (llvm::isa<nn::RmsNormOp>(op) && rank(x) > 0 && !elementType(x).isF64())
    classes.norms.push_back({classes.node(x, rank(x) - 1), op});
  else
    whole(x, rank(x) - 1, siteOf(op) + " normalises over it");
  for (Value parameter : llvm::drop_begin(op->getOperands()))
    broadcast(parameter, y);
}

// Dims in runs of equal product: of each run the major dims (1 aside) are divided together; the others stay
// whole, unless the run is one dim on both sides.
void AxisRules::reshape(nn::ReshapeOp op) {
  Value x = op.getX(), y = op.getY();
  const std::string reason = siteOf(op) + " splits it as a minor dim";
  unsigned i = 0, j = 0;
  const unsigned inner = rank(x), outer = rank(y);
  while (i < inner || j < outer) {
    const unsigned firstOfX = i, firstOfY = j;
    Dim left = 1, right = 1;
    if (i < inner)
      left = shape(x)[i++];
    if (j < outer)
      right = shape(y)[j++];
    while (!(left == right)) { // the side that divides the other grows
      const bool growLeft = i < inner && (j == outer || right.dividedBy(left).has_value());
      if (growLeft)
        left = left * shape(x)[i++];
      else if (j < outer)
        right = right * shape(y)[j++];
      else
        break;
    }
    if (!(left == right)) {
      for (unsigned axis = firstOfX; axis < inner; ++axis)
        whole(x, axis, siteOf(op) + " regroups it");
      for (unsigned axis = firstOfY; axis < outer; ++axis)
        whole(y, axis, siteOf(op) + " regroups it");
      return;
    }
    auto major = [&](Value value, unsigned first, unsigned last) {
      while (first + 1 < last && shape(value)[first] == Dim(1))
        ++first;
      return first;
    };
    const unsigned majorOfX = major(x, firstOfX, i), majorOfY = major(y, firstOfY, j);
    if (firstOfX < i && firstOfY < j)
      link(x, majorOfX, y, majorOfY);
    for (unsigned axis = firstOfX; axis < i; ++axis)
      if (axis != majorOfX && !(shape(x)[axis] == Dim(1)))
        whole(x, axis, reason);
    for (unsigned axis = firstOfY; axis < j; ++axis)
      if (axis != majorOfY && !(shape(y)[axis] == Dim(1)))
        whole(y, axis, reason);
  }
}

void AxisRules::slice(nn::SliceOp op) {
  if (isShardLeaf(op))
    return; // any piece can be taken from it
  const DimShape starts = nn::dimsFromAttr(op.getStarts());
  for (unsigned axis = 0; axis < rank(op.getX()); ++axis)
    if (starts[axis] == Dim(0) && op.getSteps()[axis] == 1 &&
        shape(op.getX())[axis] == shape(op.getY())[axis]) {
      link(op.getX(), axis, op.getY(), axis);
    } else {
      whole(op.getX(), axis, siteOf(op) + " takes a part of it");
      whole(op.getY(), axis, siteOf(op) + " takes a part of it");
    }
}

void AxisRules::gather(nn::GatherOp op) {
  Value x = op.getX(), indices = op.getIndices(), y = op.getY();
  const unsigned axis = positive(op.getAxis(), rank(x));
  if (classes.vocabulary && axis == 0 && rank(x) == 2 && classes.isParameter(x) && !classes.isParameter(indices))
    classes.lookups.push_back({classes.node(x, axis), op});
  else
    whole(x, axis, siteOf(op) + " looks up along it");
  for (unsigned i = 0; i < axis; ++i)
    link(x, i, y, i);
  for (unsigned i = 0; i < rank(indices); ++i)
    link(indices, i, y, axis + i);
  for (unsigned i = axis + 1; i < rank(x); ++i)
    link(x, i, y, i + rank(indices) - 1);
}

// A scale is a scalar, or one entry for each index of an axis, or one for each block along it.
void AxisRules::scaled(Operation *op, int64_t axis, int64_t blockSize) {
  Value x = op->getOperand(0), y = op->getResult(0);
  for (unsigned i = 0; i < rank(x); ++i)
    link(x, i, y, i);
  for (Value parameter : llvm::drop_begin(op->getOperands())) {
    if (shape(parameter).empty() || (rank(parameter) == 1 && shape(parameter)[0] == Dim(1)))
      continue;
    if (blockSize > 0 && rank(parameter) == rank(x))
      for (unsigned i = 0; i < rank(x); ++i)
        link(parameter, i, x, i);
    else if (rank(parameter) == 1)
      link(parameter, 0, x, positive(axis, rank(x)));
    else
      return allWhole(op);
  }
}

} // namespace fusion
