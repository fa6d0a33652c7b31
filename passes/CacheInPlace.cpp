// nn-cache-in-place: caches that grow by Concat(past, new) or nn.cache_write get a buffer with room and are
// extended in it; states of linear attentions are replaced, and pages are written, where they lie.
#include "ir/dialect/InPlace.h"
#include "ir/dialect/Loop.h"
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
      auto shapes = function.isExternal() || nn::isLoopBody(function)
                        ? FailureOr<nn::SymbolicShapes>(failure())
                        : nn::SymbolicShapes::compute(function);
      if (failed(shapes))
        continue;
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
        if (llvm::isa<nn::ConcatOp, nn::CacheWriteOp>(op))
          place(function, &op, *shapes);
      for (auto attention : function.getOps<nn::LinearAttentionOp>())
        placeState(function, attention, *shapes);
      for (auto scatter : function.getOps<nn::ScatterNdOp>())
        placePages(function, scatter, *shapes);
    }
  }

private:
  // Pattern: func(past) { return concat(past, new…) } -> past and the result share a buffer of `capacity`
  // positions; through reshapes of either, where the op leaves the buffer as long as it is
  void place(func::FuncOp function, Operation *write, const nn::SymbolicShapes &shapes) {
    const int64_t rank = tensorType(write->getResult(0)).getRank();
    const auto axis =
        static_cast<int64_t>(llvm::isa<nn::ConcatOp>(write) ? llvm::cast<nn::ConcatOp>(write).getAxis()
                                                            : llvm::cast<nn::CacheWriteOp>(write).getAxis());
    const auto along = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    const bool isWhole = leavesLength(write, shapes[write->getResult(0)][along]);
    Value source = write->getOperand(0);
    auto past = llvm::dyn_cast<BlockArgument>(isWhole ? nn::behindReshapes(source) : source);
    const SmallVector<unsigned> results = resultsOf(function, write->getResult(0), isWhole);
    if (!past && resultsOf(function, write->getResult(0), true).empty())
      return; // no cache at all
    if (auto reason = whyNot(write, past, results, shapes, along))
      return noteMiss(write, what, *reason);
    if (isWhole && !haveShapeOf(function, past, results, shapes))
      return noteMiss(write, what, otherShape);
    DimShape storage = shapes[past];
    if (!isWhole)
      storage[along] = Dim(static_cast<int64_t>(capacity));
    share(function, past, storage, results);
    noteRaised(write, what);
  }

  // Pattern: func(past) { return linear_attention(…, past, …)#1 } -> past and the result share a buffer of
  // their size
  void placeState(func::FuncOp function, nn::LinearAttentionOp attention, const nn::SymbolicShapes &shapes) {
    auto past = llvm::dyn_cast<BlockArgument>(attention.getState());
    const SmallVector<unsigned> results = resultsOf(function, attention.getNewState());
    if (!past || results.empty())
      return; // no state that is kept
    if (!past.hasOneUse())
      return noteMiss(attention, what, "the state has other readers, which might come after it is replaced");
    if (elementType(past) != elementType(attention.getNewState()))
      return noteMiss(attention, what, "the new state has another type of elements than the old one");
    share(function, past, shapes[past], results);
    noteRaised(attention, what);
  }

  // Pattern: func(pages) { return scatter_nd(pages, slots, new) }, through reshapes of either -> pages and
  // the result share a buffer of their size
  void placePages(func::FuncOp function, nn::ScatterNdOp scatter, const nn::SymbolicShapes &shapes) {
    auto pages = llvm::dyn_cast<BlockArgument>(nn::behindReshapes(scatter.getX()));
    const SmallVector<unsigned> results = resultsOf(function, scatter.getResult(), true);
    if (!pages || results.empty())
      return; // no pages that are kept
    if (!haveShapeOf(function, pages, results, shapes))
      return noteMiss(scatter, what, otherShape);
    if (hasOtherReaders(scatter.getX()))
      return noteMiss(scatter, what, "the pages have other readers, which might come after they are written");
    if (function.getArgAttr(pages.getArgNumber(), nn::storageAttr))
      return noteMiss(scatter, what, "the argument is extended by another op already");
    if (DType type = dtype(pages); type == DType::I4 || type == DType::U4)
      return noteMiss(scatter, what, "elements of 4 bits, which have no address");
    share(function, pages, shapes[pages], results);
    noteRaised(scatter, what);
  }

  /// The results of the function that are `value`, perhaps through reshapes.
  static SmallVector<unsigned> resultsOf(func::FuncOp function, Value value, bool reshaped = false) {
    SmallVector<unsigned> results;
    for (OpOperand &returned : function.getBody().front().getTerminator()->getOpOperands())
      if ((reshaped ? nn::behindReshapes(returned.get()) : returned.get()) == value)
        results.push_back(returned.getOperandNumber());
    return results;
  }

  static constexpr const char *otherShape =
      "a result is reshaped to another shape than the argument's, as which it cannot be given back";
  static bool haveShapeOf(func::FuncOp function, BlockArgument past, ArrayRef<unsigned> results,
                          const nn::SymbolicShapes &shapes) {
    Operation *returns = function.getBody().front().getTerminator();
    return llvm::all_of(results,
                        [&](unsigned result) { return shapes[returns->getOperand(result)] == shapes[past]; });
  }

  /// Whether somebody else reads the argument that `value` is, perhaps through reshapes.
  static bool hasOtherReaders(Value value) {
    while (value.hasOneUse() && value.getDefiningOp())
      value = value.getDefiningOp()->getOperand(0);
    return !value.hasOneUse();
  }

  void share(func::FuncOp function, BlockArgument past, const DimShape &storage, ArrayRef<unsigned> results) {
    function.setArgAttr(past.getArgNumber(), nn::storageAttr, nn::dimsToAttr(&getContext(), storage));
    for (unsigned result : results)
      function.setResultAttr(result, nn::aliasAttr,
                             Builder(&getContext()).getI64IntegerAttr(past.getArgNumber()));
  }

  /// Whether the op leaves a cache as long as it is, and the length is known: its buffer has no more room.
  static bool leavesLength(Operation *write, const Dim &length) {
    auto cache = llvm::dyn_cast<nn::CacheWriteOp>(write);
    return cache && !cache.getGrows() && length.isStatic();
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
    if (auto cache = llvm::dyn_cast<nn::CacheWriteOp>(write);
        cache && !cache.getGrows() && hasOtherReaders(cache.getPast()))
      return std::string("the cache has other readers, which might come after its rows are replaced");
    const Dim &needed = shapes[write->getResult(0)][along];
    if (!leavesLength(write, needed) && needed.isStatic() && needed.value() > static_cast<int64_t>(capacity))
      return std::to_string(needed.value()) + " positions do not fit in " + std::to_string(capacity);
    return std::nullopt;
  }
};
} // namespace
} // namespace fusion
