#include "passes/Passes.h"

#include "ir/dialect/Mesh.h"
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

struct Shard : impl::ShardBase<Shard> {
  using ShardBase::ShardBase;

  void runOnOperation() override {
    if (ranks == 1)
      return;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(shard(function)))
        return signalPassFailure();
  }

  LogicalResult shard(func::FuncOp function) {
    if (ranks < 1)
      return function.emitError() << "cannot be divided among " << ranks.getValue() << " ranks";
    if (auto cut = nn::ranksOf(function)) {
      if (*cut != ranks)
        return function.emitError() << "is cut for " << *cut << " ranks, not " << ranks.getValue();
      auto shapes = nn::SymbolicShapes::compute(function);
      return failed(shapes) ? failure() : placePorts(function, *shapes, ranks);
    }
    if (!function.getOps<nn::AllReduceOp>().empty())
      return function.emitError() << "holds collectives already: it is one rank's graph; give the files of all ranks, "
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
    eraseDeadOps(function);
    return success();
  }
};

} // namespace

} // namespace fusion
