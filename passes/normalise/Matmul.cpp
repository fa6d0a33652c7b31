// Operands that a matmul can read as they lie: through transposes, and in 16 bits where it adds in f32.
#include "passes/Match.h"
#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::normalise {

namespace {

nn::TransposeOp swapOfLastTwo(Value value) {
  auto transpose = value.getDefiningOp<nn::TransposeOp>();
  if (!transpose)
    return {};
  ArrayRef<int64_t> perm = transpose.getPerm();
  int64_t rank = static_cast<int64_t>(perm.size());
  for (int64_t i = 0; i < rank; ++i) {
    int64_t expected = i < rank - 2 ? i : (i == rank - 2 ? rank - 1 : rank - 2);
    if (rank < 2 || perm[i] != expected)
      return {};
  }
  return transpose;
}

// Pattern: matmul(a, transpose(b)) -> matmul(a, b) {transpose_b flipped}; the same for a
LogicalResult transposedOperand(nn::MatmulOp op, PatternRewriter &rewriter, ShapeTable &) {
  if (auto transpose = swapOfLastTwo(op.getB())) {
    replaceByChanged(rewriter, op, [&](nn::MatmulOp changed) {
      changed.setTransposeB(!op.getTransposeB());
      changed.getBMutable().assign(transpose.getX());
    });
    return success();
  }
  if (auto transpose = swapOfLastTwo(op.getA())) {
    replaceByChanged(rewriter, op, [&](nn::MatmulOp changed) {
      changed.setTransposeA(!op.getTransposeA());
      changed.getAMutable().assign(transpose.getX());
    });
    return success();
  }
  return failure();
}

/// A multiplication or division by one number, or a cast: what stands between a transpose and its matmul.
bool scalesOnly(Operation *op) {
  if (llvm::isa<nn::CastOp>(op))
    return true;
  return llvm::isa<nn::MulOp, nn::DivOp>(op) && constantScalar(op->getOperand(1)) &&
         tensorType(op->getOperand(1)).getNumElements() == 1;
}

bool endsInMatmul(Operation *op) {
  for (Operation *user = onlyUser(op->getResult(0)); user; user = onlyUser(user->getResult(0))) {
    if (llvm::isa<nn::MatmulOp>(user))
      return true;
    if (user->getNumResults() != 1 || !scalesOnly(user))
      return false;
  }
  return false;
}

// Pattern: matmul(a, scale(transpose(b), s)) -> matmul(a, transpose(scale(b, s))); scale a mul, div or cast
LogicalResult transposeAfterScale(Operation *op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (!scalesOnly(op))
    return failure();
  auto transpose = swapOfLastTwo(op->getOperand(0));
  if (!transpose || !shapes.same(op->getResult(0), transpose) || !endsInMatmul(op))
    return failure();
  SmallVector<Value> operands(op->getOperands());
  operands[0] = transpose.getX();
  Value scaled = rebuild(rewriter, op, operands);
  replaceByNew(rewriter, op, nn::buildTranspose(rewriter, op->getLoc(), scaled, transpose.getPerm()));
  return success();
}

// Pattern: matmul(a[…, m, 1], b[…, 1, n]) -> mul(a, b): positions times frequencies
LogicalResult outerProduct(nn::MatmulOp op, PatternRewriter &rewriter, ShapeTable &shapes) {
  if (op.getTransposeA() || op.getTransposeB() || elementType(op.getA()) != elementType(op.getB()) ||
      elementType(op.getA()) != elementType(op.getY()) || !llvm::isa<FloatType>(elementType(op.getA())))
    return failure();
  DimShape left = shapes.of(op.getA()), right = shapes.of(op.getB());
  if (left.size() < 2 || right.size() < 2 || left.back() != Dim(1) || right[right.size() - 2] != Dim(1))
    return failure();
  replaceByNew(rewriter, op, nn::build<nn::MulOp>(rewriter, op.getLoc(), {op.getA(), op.getB()}));
  return success();
}

/// Whether sums of a product end in a cast to `type`, behind additions and multiplications in f32.
bool roundsTo(nn::MatmulOp op, Type type) {
  for (Operation *user = onlyUser(op); user; user = onlyUser(user->getResult(0))) {
    if (llvm::isa<nn::CastOp>(user))
      return elementType(user->getResult(0)) == type;
    if (!llvm::isa<nn::AddOp, nn::MulOp>(user) || !elementType(user->getResult(0)).isF32())
      return false;
  }
  return false;
}

// Pattern: cast16(matmul(cast32(a), cast32(b)) + c) -> cast16(matmul(a, b) as f32 + c); products of elements
// of 16 bits are exact in f32, where both add them up
LogicalResult widenedOperands(nn::MatmulOp op, PatternRewriter &rewriter, ShapeTable &) {
  auto a = op.getA().getDefiningOp<nn::CastOp>(), b = op.getB().getDefiningOp<nn::CastOp>();
  if (!a || !b || !elementType(op.getY()).isF32() || !elementType(op.getA()).isF32() ||
      !elementType(op.getB()).isF32())
    return failure();
  const Type type = elementType(a.getX());
  if (type != elementType(b.getX()) || !(type.isBF16() || type.isF16()) || !roundsTo(op, type))
    return failure();
  replaceByChanged(rewriter, op, [&](nn::MatmulOp changed) {
    changed.getAMutable().assign(a.getX());
    changed.getBMutable().assign(b.getX());
  });
  return success();
}

} // namespace

void addMatmul(RewritePatternSet &patterns, ShapeTable &shapes) {
  add<nn::MatmulOp>(patterns, shapes, transposedOperand);
  add<nn::MatmulOp>(patterns, shapes, outerProduct);
  add<nn::MatmulOp>(patterns, shapes, widenedOperands);
  addPointwise(patterns, shapes, transposeAfterScale);
}

} // namespace fusion::normalise
