// Heads: norms and rotations along the last dim work on the order of dims that attention reads, so that no
// transpose stands between them, and caches are written head by head.
#include "passes/Match.h"
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

// Pattern: transpose(norm(x, w)) that keeps the last dim -> norm(transpose(x), w)
LogicalResult transposeBeforeNorm(nn::TransposeOp op, PatternRewriter &rewriter, ShapeTable &) {
  Operation *norm = op.getX().getDefiningOp();
  if (!llvm::isa_and_nonnull<nn::Norm>(norm) || !keepsLastDim(op.getPerm()) || !transposesFreely(op.getX()))
    return failure();
  for (Value parameter : llvm::drop_begin(norm->getOperands()))
    if (tensorType(parameter).getRank() != 1)
      return failure();
  SmallVector<Value> operands(norm->getOperands());
  operands[0] = nn::buildTranspose(rewriter, op.getLoc(), operands[0], op.getPerm());
  replaceByNew(rewriter, op, rebuild(rewriter, norm, operands));
  return success();
}

// Pattern: transpose(rope(x, cos, sin)) that keeps the last dim -> rope(transpose(x), transpose(cos),
// transpose(sin))
LogicalResult transposeBeforeRope(nn::TransposeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto rope = op.getX().getDefiningOp<nn::RopeOp>();
  if (!rope || !rope->hasOneUse() || !keepsLastDim(op.getPerm()) || !transposesFreely(rope.getX()))
    return failure();
  SmallVector<Value> operands = {nn::buildTranspose(rewriter, op.getLoc(), rope.getX(), op.getPerm())};
  for (Value table : {rope.getCos(), rope.getSin()}) {
    DimShape shape = shapes.of(table);
    if (const size_t rank = op.getPerm().size(); shape.size() < rank) {
      shape.insert(shape.begin(), rank - shape.size(), Dim(1));
      table = nn::buildReshape(rewriter, op.getLoc(), table, shape);
    }
    operands.push_back(nn::buildTranspose(rewriter, op.getLoc(), table, op.getPerm()));
  }
  replaceByNew(rewriter, op, rebuild(rewriter, rope, operands));
  return success();
}

/// `value` is arithmetic, read nowhere else, on a transpose that `perm` undoes.
bool leadsToInverse(Value value, ArrayRef<int64_t> perm, int depth = 8) {
  Operation *op = value.getDefiningOp();
  if (auto transpose = llvm::dyn_cast_or_null<nn::TransposeOp>(op)) {
    for (auto [to, from] : llvm::enumerate(perm))
      if (transpose.getPerm()[from] != static_cast<int64_t>(to))
        return false;
    return true;
  }
  return depth > 0 && op && op->hasTrait<nn::Pointwise>() && op->hasOneUse() &&
         tensorType(value).getRank() == static_cast<int64_t>(perm.size()) &&
         llvm::any_of(op->getOperands(),
                      [&](Value operand) { return leadsToInverse(operand, perm, depth - 1); });
}

/// The transpose by `perm` of a value for which that holds, or of what broadcasts to such a value.
Value transposedInside(Value value, ArrayRef<int64_t> perm, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (leadsToInverse(value, perm)) {
    Operation *op = value.getDefiningOp();
    if (llvm::isa<nn::TransposeOp>(op))
      return op->getOperand(0);
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(transposedInside(operand, perm, rewriter, shapes));
    return rebuild(rewriter, op, operands);
  }
  DimShape shape = shapes.of(value);
  if (shape.empty())
    return value;
  shape.insert(shape.begin(), perm.size() - shape.size(), Dim(1));
  return nn::buildTranspose(rewriter, value.getLoc(),
                            nn::buildReshape(rewriter, value.getLoc(), value, shape), perm);
}

// Pattern: transpose(softmax(f(transpose(x)))) of arithmetic f, of transposes that undo each other and keep
// the last dim -> softmax(f(x)): scores of [batch, queries, heads, keys], as einsums of DeepSeek have them
LogicalResult transposeBeforeSoftmax(nn::TransposeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  auto softmax = op.getX().getDefiningOp<nn::SoftmaxOp>();
  const auto last = static_cast<int64_t>(op.getPerm().size()) - 1;
  if (!softmax || !softmax->hasOneUse() || !keepsLastDim(op.getPerm()) ||
      (static_cast<int64_t>(softmax.getAxis()) != last && static_cast<int64_t>(softmax.getAxis()) != -1) ||
      !leadsToInverse(softmax.getX(), op.getPerm()))
    return failure();
  rewriter.setInsertionPoint(softmax);
  Value x = transposedInside(softmax.getX(), op.getPerm(), rewriter, shapes);
  replaceByNew(rewriter, op, rebuild(rewriter, softmax, {x}));
  return success();
}

/// Each entry of one dim of a value, `copies` times in a row: reshape(expand(source)). `single` is the
/// value's shape before.
struct RepeatedDim {
  Value source;
  DimShape single;
  int64_t axis;
  Dim copies;
};
std::optional<RepeatedDim> matchRepeatedDim(Value value, ShapeTable &shapes) {
  auto merge = value.getDefiningOp<nn::ReshapeOp>();
  auto expand = merge ? merge.getX().getDefiningOp<nn::ExpandOp>() : nn::ExpandOp();
  if (!expand)
    return std::nullopt;
  const DimShape from = shapes.of(expand.getX()), to = shapes.of(expand), merged = shapes.of(merge);
  int64_t added = -1;
  for (size_t i = 0; i < to.size() && from.size() == to.size(); ++i)
    if (!(from[i] == to[i])) {
      if (added >= 0 || !(from[i] == Dim(1)) || !to[i].isStatic())
        return std::nullopt;
      added = static_cast<int64_t>(i);
    }
  if (added < 0)
    return std::nullopt;
  const Dim before = product(ArrayRef(from).take_front(added)), copies = to[added];
  for (size_t axis = 0; axis < merged.size(); ++axis) {
    auto entries = merged[axis].dividedBy(copies);
    if (!entries || !(product(ArrayRef(merged).take_front(axis)) * *entries == before))
      continue;
    DimShape single = merged;
    single[axis] = *entries;
    if (product(single) == product(from))
      return RepeatedDim{expand.getX(), single, static_cast<int64_t>(axis), copies};
  }
  return std::nullopt;
}

// Pattern: transpose(reshape(expand(x))) that repeats the entries of a dim -> reshape(expand(transpose(x))),
// and a swap of the last two dims where the last one moves: key and value heads are repeated in the order of
// dims in which attention reads them, which need not repeat them
LogicalResult transposeBeforeRepeat(nn::TransposeOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  SmallVector<int64_t> perm(op.getPerm());
  const bool swaps = perm.size() > 1 && !keepsLastDim(perm);
  if (swaps)
    std::swap(perm.back(), perm[perm.size() - 2]);
  auto repeated =
      keepsLastDim(perm) && !llvm::is_sorted(perm) ? matchRepeatedDim(op.getX(), shapes) : std::nullopt;
  if (!repeated || repeated->axis == perm.back())
    return failure();
  const Location loc = op.getLoc();
  Value x = nn::buildTranspose(rewriter, loc,
                               nn::buildReshape(rewriter, loc, repeated->source, repeated->single), perm);
  DimShape shape;
  for (int64_t from : perm)
    shape.push_back(repeated->single[from]);
  const auto axis = llvm::find(perm, repeated->axis) - perm.begin();
  shape.insert(shape.begin() + axis + 1, Dim(1));
  x = nn::buildReshape(rewriter, loc, x, shape);
  shape[axis + 1] = repeated->copies;
  x = nn::build<nn::ExpandOp>(rewriter, loc, x,
                              rewriter.getNamedAttr("shape", nn::dimsToAttr(op.getContext(), shape)));
  shape[axis] = shape[axis] * repeated->copies;
  shape.erase(shape.begin() + axis + 1);
  x = nn::buildReshape(rewriter, loc, x, shape);
  replaceByNew(rewriter, op, swaps ? nn::buildTranspose(rewriter, loc, x, lastTwoSwapped(perm.size())) : x);
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
  add<nn::TransposeOp>(patterns, shapes, transposeBeforeRepeat);
  add<nn::TransposeOp>(patterns, shapes, transposeBeforeSoftmax);
  add<nn::ReshapeOp>(patterns, shapes, writeHeads);
}

} // namespace fusion::normalise
