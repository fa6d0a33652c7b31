#include "passes/Passes.h"

#include "ir/dialect/Loop.h"
#include "ir/dialect/Mesh.h"
#include "ir/dialect/Types.h"
#include "passes/Match.h"
#include "passes/Unpack.h"
#include "passes/shard/PlacePorts.h"
#include "passes/shard/Sharder.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_SHARD
#include "passes/Passes.h.inc"

namespace {

// Pattern: reshape(weight) -> a weight of that shape, so that its dims can be divided
void reshapeWeights(func::FuncOp function) {
  for (auto reshape : llvm::to_vector(function.getOps<nn::ReshapeOp>())) {
    auto weight = reshape.getX().getDefiningOp<nn::WeightOp>();
    auto type = llvm::cast<RankedTensorType>(reshape.getType());
    if (!weight || weight.getStarts() || weight.getRankPaths() || !type.hasStaticShape())
      continue;
    OpBuilder builder(weight);
    auto shaped = llvm::cast<nn::WeightOp>(builder.clone(*weight));
    shaped.getResult().setType(type);
    reshape.getY().replaceAllUsesWith(shaped);
    reshape.erase();
  }
}

// Pattern: reduce(cast?(all_reduce(expert_matmul)) * weights) over slots ->
// all_reduce(reduce(cast?(expert_matmul) * weights)) with one weight for all columns: a row crosses once, not
// once for each slot.
void sumAfterSlots(nn::AllReduceOp sum) {
  if (!sum.getX().getDefiningOp<nn::ExpertMatmulOp>())
    return;
  Value value = sum.getY();
  if (auto cast = onlyUserAs<nn::CastOp>(value); cast && llvm::isa<FloatType>(elementType(cast)))
    value = cast;
  auto product = onlyUserAs<nn::MulOp>(value);
  auto slots = product ? onlyUserAs<nn::ReduceOp>(product.getY()) : nn::ReduceOp();
  const int64_t rank = tensorType(value).getRank();
  if (!slots || slots.getKind() != "sum" || slots.getAxes().size() != 1 ||
      (slots.getAxes()[0] != rank - 2 && slots.getAxes()[0] != -2))
    return;
  Value weights = product.getLhs() == value ? product.getRhs() : product.getLhs();
  if (weights == value || tensorType(weights).getRank() == 0 || tensorType(weights).getShape().back() != 1)
    return;
  OpBuilder builder(slots->getContext());
  builder.setInsertionPointAfter(slots);
  sum.getY().replaceAllUsesWith(sum.getX());
  auto moved = llvm::cast<nn::AllReduceOp>(builder.clone(*sum));
  slots.getY().replaceAllUsesWith(moved.getY());
  moved.getXMutable().assign(slots.getY());
  moved.getY().setType(llvm::cast<RankedTensorType>(slots.getType()));
  sum.erase();
}

struct Shard : impl::ShardBase<Shard> {
  using ShardBase::ShardBase;

  void runOnOperation() override {
    if (ranks == 1)
      return;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && !nn::isLoopBody(function) && failed(shard(function)))
        return signalPassFailure();
  }

  LogicalResult shard(func::FuncOp function) {
    if (ranks < 1)
      return function.emitError() << "cannot be divided among " << ranks.getValue() << " ranks";
    if (!function.getOps<GroupOp>().empty())
      return function.emitError() << "holds groups of fused ops: divide a graph before it is fused";
    if (auto cut = nn::ranksOf(function)) {
      if (*cut != ranks)
        return function.emitError() << "is cut for " << *cut << " ranks, not " << ranks.getValue();
      auto shapes = nn::SymbolicShapes::compute(function);
      return failed(shapes) ? failure() : placePorts(function, *shapes, ranks);
    }
    if (!function.getOps<nn::AllReduceOp>().empty())
      return function.emitError()
             << "holds collectives already: it is one rank's graph; give the files of all ranks, "
                "with {rank} for the number in their names";
    reshapeWeights(function);
    auto table = ShapeTable::compute(function);
    if (failed(table))
      return failure();
    unpackProjections(function, *table, [](ArrayRef<nn::SliceOp>) { return true; });
    auto shapes = nn::SymbolicShapes::compute(function);
    if (failed(shapes))
      return failure();
    AxisClasses classes(function, *shapes, vocabulary);
    Division division(classes, *shapes, ranks, vocabulary);
    division.choose();
    if (failed(Sharder(function, *shapes, division, ranks).run()))
      return failure();
    for (auto sum : llvm::to_vector(function.getOps<nn::AllReduceOp>()))
      sumAfterSlots(sum);
    eraseDeadOps(function);
    return success();
  }
};

} // namespace

} // namespace fusion
