#include "passes/ShapeTable.h"

#include "ir/dialect/Types.h"
#include "passes/RewriteLog.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace fusion {

FailureOr<ShapeTable> ShapeTable::compute(func::FuncOp function) {
  auto shapes = nn::SymbolicShapes::compute(function);
  if (failed(shapes))
    return failure();
  return ShapeTable(std::move(*shapes));
}

DimShape ShapeTable::of(Value value) {
  if (!shapes.contains(value)) {
    if (Operation *op = value.getDefiningOp(); op && llvm::isa<nn::ShapeInference>(op))
      record(op);
    if (!shapes.contains(value))
      return nn::shapeFromType(value);
  }
  return shapes[value];
}

void ShapeTable::notifyOperationReplaced(Operation *op, ValueRange by) { recordRewrite(op, by, *this); }

void ShapeTable::record(Operation *op) {
  if (!llvm::isa<nn::ShapeInference>(op))
    return;
  for (Value operand : op->getOperands())
    if (!shapes.contains(operand)) {
      Operation *producer = operand.getDefiningOp();
      if (!producer || !llvm::isa<nn::ShapeInference>(producer))
        return;
      record(producer);
      if (!shapes.contains(operand))
        return;
    }
  (void)shapes.add(op);
}

std::optional<DimShape> provenBroadcast(ArrayRef<DimShape> shapes) {
  size_t rank = 0;
  for (const DimShape &shape : shapes)
    rank = std::max(rank, shape.size());
  DimShape result(rank, Dim(1));
  for (const DimShape &shape : shapes)
    for (size_t i = 0; i < shape.size(); ++i) {
      Dim &into = result[rank - shape.size() + i];
      if (shape[i] == Dim(1) || shape[i] == into)
        continue;
      if (!(into == Dim(1)))
        return std::nullopt;
      into = shape[i];
    }
  return result;
}

void replaceByNew(RewriterBase &rewriter, Operation *op, Value built) {
  built.setType(llvm::cast<RankedTensorType>(op->getResult(0).getType()));
  rewriter.replaceOp(op, built);
}

bool canReplaceBy(Operation *op, Value value) {
  Value result = op->getResult(0);
  if (result.getType() == value.getType())
    return true;
  if (elementType(result) != elementType(value) ||
      failed(verifyCompatibleShape(tensorType(result), tensorType(value))))
    return false;
  return llvm::all_of(result.getUsers(), [](Operation *user) { return llvm::isa<nn::ShapeInference>(user); });
}

GreedyRewriteConfig greedyConfig(ShapeTable &shapes) {
  GreedyRewriteConfig config;
  config.setUseTopDownTraversal(true)
      .setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled)
      .setMaxIterations(GreedyRewriteConfig::kNoLimit)
      .setMaxNumRewrites(GreedyRewriteConfig::kNoLimit)
      .setListener(&shapes)
      .enableFolding()
      .enableConstantCSE();
  return config;
}

void eraseDeadOps(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

} // namespace fusion
