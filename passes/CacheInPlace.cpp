// nn-cache-in-place: caches that grow by Concat(past, new) or nn.cache_write get a buffer with room and are extended in it.
#include "ir/dialect/InPlace.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"
#include "passes/MissLog.h"
#include "passes/Passes.h"

#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace fusion {
#define GEN_PASS_DEF_CACHEINPLACE
#include "passes/Passes.h.inc"

namespace {
constexpr llvm::StringLiteral what = "cache_in_place";

class CacheInPlace : public impl::CacheInPlaceBase<CacheInPlace> {
public:
  using CacheInPlaceBase::CacheInPlaceBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      auto shapes = function.isExternal() ? FailureOr<nn::SymbolicShapes>(failure())
                                          : nn::SymbolicShapes::compute(function);
      if (succeeded(shapes))
        for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
          if (llvm::isa<nn::ConcatOp, nn::CacheWriteOp>(op))
            place(function, &op, *shapes);
    }
  }

private:
  // Pattern: func(past) { return concat(past, new…) } -> past and the result share a buffer of `capacity` positions
  void place(func::FuncOp function, Operation *write, const nn::SymbolicShapes &shapes) {
    auto past = llvm::dyn_cast<BlockArgument>(write->getOperand(0));
    SmallVector<unsigned> results;
    Operation *returns = function.getBody().front().getTerminator();
    for (OpOperand &use : write->getResult(0).getUses())
      if (use.getOwner() == returns)
        results.push_back(use.getOperandNumber());
    if (!past && results.empty())
      return; // no cache at all
    const int64_t rank = tensorType(write->getResult(0)).getRank();
    const auto axis = static_cast<int64_t>(llvm::isa<nn::ConcatOp>(write) ? llvm::cast<nn::ConcatOp>(write).getAxis()
                                                                          : llvm::cast<nn::CacheWriteOp>(write).getAxis());
    const auto along = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    if (auto reason = whyNot(write, past, results, shapes, along))
      return noteMiss(write, what, *reason);
    DimShape storage = shapes[past];
    storage[along] = Dim(static_cast<int64_t>(capacity));
    Builder builder(&getContext());
    function.setArgAttr(past.getArgNumber(), nn::storageAttr, nn::dimsToAttr(&getContext(), storage));
    for (unsigned result : results)
      function.setResultAttr(result, nn::aliasAttr, builder.getI64IntegerAttr(past.getArgNumber()));
    noteRaised(write, what);
  }

  std::optional<std::string> whyNot(Operation *write, BlockArgument past, ArrayRef<unsigned> results,
                                    const nn::SymbolicShapes &shapes, size_t along) {
    const std::string name = write->getName().getStringRef().str();
    if (!past) {
      Operation *producer = write->getOperand(0).getDefiningOp();
      return "operand 0 of " + name + " is produced by " + producer->getName().getStringRef().str() +
             ", not an argument of the graph";
    }
    if (results.empty())
      return "the " + name + " of an argument is no result of the graph";
    if (llvm::is_contained(write->getOperands().drop_front(), past))
      return name + " joins the argument with itself";
    auto function = llvm::cast<func::FuncOp>(write->getParentOp());
    if (function.getArgAttr(past.getArgNumber(), nn::storageAttr))
      return std::string("the argument is extended by another op already");
    if (DType type = dtype(past); type == DType::I4 || type == DType::U4)
      return std::string("elements of 4 bits, which have no address");
    const Dim &needed = shapes[write->getResult(0)][along];
    if (needed.isStatic() && needed.value() > static_cast<int64_t>(capacity))
      return std::to_string(needed.value()) + " positions do not fit in " + std::to_string(capacity);
    return std::nullopt;
  }
};
} // namespace
} // namespace fusion
