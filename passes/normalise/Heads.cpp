// Heads: norms and rotations along the last dim work on the order of dims that attention reads, so that no
// transpose stands between them, and caches are written head by head.
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::normalise {

namespace {

/// A transpose of the value costs nothing: it is a view itself, or computed along its last dim from one.
bool transposesFreely(Value value) {
  Operation *op = value.getDefiningOp();
  if (llvm::isa_and_nonnull<nn::ReshapeOp, nn::SliceOp>(op))
    return true;
  return llvm::isa_and_nonnull<nn::Norm>(op) && op->hasOneUse() && transposesFreely(op->getOperand(0));
}

bool keepsLastDim(ArrayRef<int64_t> perm) {
  return !perm.empty() && perm.back() == static_cast<int64_t>(perm.size()) - 1;
}

Value transposed(PatternRewriter &rewriter, Location loc, Value value, ArrayRef<int64_t> perm) {
  return nn::build<nn::TransposeOp>(rewriter, loc, value,
                                    rewriter.getNamedAttr("perm", rewriter.getDenseI64ArrayAttr(perm)));
}

// Pattern: transpose(norm(x, w)) that keeps the last dim -> norm(transpose(x), w)
LogicalResult transposeBeforeNorm(nn::TransposeOp op, PatternRewriter &rewriter, ShapeTable &) {
  Operation *norm = op.getX().getDefiningOp();
  if (!llvm::isa_and_nonnull<nn::Norm>(norm) || !keepsLastDim(op.getPerm()) || !transposesFreely(op.getX()))
    return failure();
  for (Value parameter : llvm::drop_begin(norm->getOperands()))
    if (tensorType(parameter).getRank() != 1)
      return failure();
  SmallVector<Value> operands(norm->getOperands());
  operands[0] = transposed(rewriter, op.getLoc(), operands[0], op.getPerm());
  replaceByNew(rewriter, op, rebuild(rewriter, norm, operands));
  return success();
}

// Pattern: transpose(rope(x, cos, sin)) that keeps the last dim -> rope(transpose(x), transpose(cos),
// transpose(sin))
LogicalResult transposeBeforeRope(nn::TransposeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto rope = op.getX().getDefiningOp<nn::RopeOp>();
  if (!rope || !rope->hasOneUse() || !keepsLastDim(op.getPerm()) || !transposesFreely(rope.getX()))
    return failure();
  SmallVector<Value> operands = {transposed(rewriter, op.getLoc(), rope.getX(), op.getPerm())};
  for (Value table : {rope.getCos(), rope.getSin()}) {
    DimShape shape = shapes.of(table);
    if (const size_t rank = op.getPerm().size(); shape.size() < rank) {
      shape.insert(shape.begin(), rank - shape.size(), Dim(1));
      table = nn::buildReshape(rewriter, op.getLoc(), table, shape);
    }
    operands.push_back(transposed(rewriter, op.getLoc(), table, op.getPerm()));
  }
  replaceByNew(rewriter, op, rebuild(rewriter, rope, operands));
  return success();
}

// Pattern: reshape(cache_write(past : [.., h * d], fresh, rows)) to [.., h, d] ->
// cache_write(reshape(past), reshape(fresh), reshape(rows)): the reshape of the new rows meets that of their
// rotation. For an argument of a known length, which lies in a buffer that is full whatever its shape is
LogicalResult writeHeads(nn::ReshapeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto write = op.getX().getDefiningOp<nn::CacheWriteOp>();
  if (!write || write.getGrows() || !llvm::isa<BlockArgument>(write.getPast()))
    return failure();
  const DimShape from = shapes.of(write), to = shapes.of(op);
  const auto rank = static_cast<int64_t>(from.size());
  const auto axis =
      static_cast<int64_t>(write.getAxis()) + (static_cast<int64_t>(write.getAxis()) < 0 ? rank : 0);
  if (axis + 1 >= rank || to.size() != from.size() + 1 ||
      !std::equal(from.begin(), from.end() - 1, to.begin()) || !from[static_cast<size_t>(axis)].isStatic() ||
      !to.back().isStatic() || !to[from.size() - 1].isStatic())
    return failure();
  rewriter.setInsertionPoint(write);
  auto divided = [&](Value value, const Dim &heads, const Dim &size) {
    DimShape shape = shapes.of(value);
    shape.back() = heads;
    shape.push_back(size);
    return nn::buildReshape(rewriter, op.getLoc(), value, shape);
  };
  const Dim heads = to[from.size() - 1], size = to.back();
  Value past = divided(write.getPast(), heads, size), fresh = divided(write.getFresh(), heads, size),
        rows = tensorType(write.getRows()).getRank() == 0 ? write.getRows()
                                                          : divided(write.getRows(), Dim(1), Dim(1));
  Value written =
      nn::build<nn::CacheWriteOp>(rewriter, write.getLoc(), {past, fresh, rows},
                                  rewriter.getNamedAttr("axis", rewriter.getI64IntegerAttr(axis)));
  Value flat = nn::buildReshape(rewriter, op.getLoc(), written, from);
  rewriter.replaceOp(write, flat);
  return success();
}

} // namespace

void addHeads(RewritePatternSet &patterns, ShapeTable &shapes) {
  add<nn::TransposeOp>(patterns, shapes, transposeBeforeNorm);
  add<nn::TransposeOp>(patterns, shapes, transposeBeforeRope);
  add<nn::ReshapeOp>(patterns, shapes, writeHeads);
}

} // namespace fusion::normalise
