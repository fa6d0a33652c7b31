#include "passes/Passes.h"

#include "ir/base/BindSymbols.h"
#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"
#include "passes/MissLog.h"
#include "passes/Unpack.h"
#include "passes/shard/AxisClasses.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_SHARD
#include "passes/Passes.h.inc"

namespace {

/// Which classes are divided, and into how many pieces.
class Division {
public:
  Division(const AxisClasses &classes, const nn::SymbolicShapes &shapes, int64_t ranks)
      : classes(classes), shapes(shapes), ranks(ranks), parts(classes.classes().size(), 1) {}

  /// Takes what can be divided, the largest weights first; notes the sums that it makes and, for every
  /// product by a weight that stays whole, why.
  void choose();
  /// The one axis of the value that is divided, and the number of pieces.
  std::optional<std::pair<unsigned, int64_t>> of(Value value) const;
  /// Whether the product leaves a partial sum on every rank.
  bool isPartial(nn::MatmulOp op) const { return partial.contains(op); }
  bool empty() const { return partial.empty(); }

private:
  using Id = AxisClasses::Id;
  SmallVector<Id> component(Id first) const;
  std::string whyWhole(ArrayRef<Id> ids) const;
  std::string conflict(Id id) const;
  int64_t piecesOf(const AxisClasses::Class &group) const;
  int64_t weightElements(ArrayRef<Id> ids) const;

  const AxisClasses &classes;
  const nn::SymbolicShapes &shapes;
  const int64_t ranks;
  std::vector<int64_t> parts;
  DenseMap<Value, unsigned> divided; ///< value -> axis
  DenseSet<Operation *> partial;
};

SmallVector<AxisClasses::Id> Division::component(Id first) const {
  SmallVector<Id> ids = {first};
  for (size_t next = 0; next < ids.size(); ++next)
    for (Id companion : classes.classes()[ids[next]].companions)
      if (!llvm::is_contained(ids, companion))
        ids.push_back(companion);
  return ids;
}

/// 0 if the class cannot be divided evenly.
int64_t Division::piecesOf(const AxisClasses::Class &group) const {
  if (group.units % ranks == 0)
    return ranks;
  return group.keyHeads && group.units > 0 && ranks % group.units == 0 ? group.units : 0;
}

std::string Division::conflict(Id id) const {
  DenseSet<Value> seen;
  for (const AxisClasses::Axis &member : classes.classes()[id].members)
    if (!seen.insert(member.value).second || divided.contains(member.value))
      return "another dim of " + locationName(member.value.getLoc()) + " is divided";
  return "";
}

std::string Division::whyWhole(ArrayRef<Id> ids) const {
  bool summed = false;
  for (Id id : ids) {
    const AxisClasses::Class &group = classes.classes()[id];
    summed |= !group.sums.empty();
    if (!group.whole.empty())
      return group.whole;
    if (piecesOf(group) == 0)
      return std::to_string(group.units) + " equal pieces at most, for " + std::to_string(ranks) + " ranks";
    if (std::string reason = conflict(id); !reason.empty())
      return reason;
    for (const AxisClasses::Axis &member : group.members)
      if (auto argument = llvm::dyn_cast<BlockArgument>(member.value);
          argument && !llvm::isa<FloatType>(elementType(argument)))
        return "an integer input of the graph has it";
  }
  return summed ? "" : "no product sums over it, so that dividing it would need a gather";
}

int64_t Division::weightElements(ArrayRef<Id> ids) const {
  int64_t elements = 0;
  for (Id id : ids)
    for (const AxisClasses::Axis &member : classes.classes()[id].members)
      if (classes.isParameter(member.value))
        elements += product(shapes[member.value]).constant().value_or(0);
  return elements;
}

void Division::choose() {
  struct Candidate {
    SmallVector<Id> ids;
    int64_t elements;
  };
  std::vector<Candidate> candidates;
  DenseSet<Id> seen;
  for (Id id = 0; id < classes.classes().size(); ++id) {
    SmallVector<Id> ids = component(id);
    bool weighty = llvm::any_of(ids, [&](Id member) { return !classes.classes()[member].columns.empty(); });
    if (weighty && !seen.contains(id))
      candidates.push_back({ids, weightElements(ids)});
    seen.insert(ids.begin(), ids.end());
  }
  llvm::sort(candidates, [](const Candidate &a, const Candidate &b) {
    return std::make_pair(-a.elements, a.ids.front()) < std::make_pair(-b.elements, b.ids.front());
  });
  std::vector<std::pair<Operation *, std::string>> whole;
  for (const Candidate &candidate : candidates) {
    std::string reason = whyWhole(candidate.ids);
    for (Id id : candidate.ids) {
      const AxisClasses::Class &group = classes.classes()[id];
      for (Operation *op : group.columns)
        if (!reason.empty())
          whole.push_back({op, reason});
      if (!reason.empty())
        continue;
      parts[id] = piecesOf(group);
      if (parts[id] > 1)
        for (const AxisClasses::Axis &member : group.members)
          divided[member.value] = member.axis;
      partial.insert(group.sums.begin(), group.sums.end());
    }
  }
  for (auto &[op, reason] : whole)
    if (!partial.contains(op))
      noteMiss(op, "shard", "its columns stay whole: " + reason);
}

std::optional<std::pair<unsigned, int64_t>> Division::of(Value value) const {
  auto entry = divided.find(value);
  if (entry == divided.end())
    return std::nullopt;
  return std::make_pair(entry->second, parts[*classes.of(value, entry->second)]);
}

/// Rewrites the function into what one rank runs; the rank is the symbol nn::rankSymbol.
class Sharder {
public:
  Sharder(func::FuncOp function, const nn::SymbolicShapes &shapes, const Division &division, int64_t ranks)
      : function(function), shapes(shapes), division(division), ranks(ranks), builder(function.getContext()) {
  }

  LogicalResult run() {
    // What is divided is asked of the values of the graph as it was: before the first of them goes.
    for (Operation &op : function.getBody().front().without_terminator())
      for (Value result : op.getResults())
        pieces[result] = division.of(result);
    recordResults();
    for (BlockArgument argument : function.getArguments())
      shardArgument(argument);
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front().without_terminator()))
      if (failed(shard(&op)))
        return failure();
    SmallVector<Type> results(function.getBody().front().getTerminator()->getOperandTypes());
    function.setFunctionType(
        FunctionType::get(function.getContext(), function.getBody().front().getArgumentTypes(), results));
    function->setAttr(nn::ranksAttr, builder.getI64IntegerAttr(ranks));
    return success();
  }

private:
  using Piece = std::optional<std::pair<unsigned, int64_t>>;

  static DimShape localShape(DimShape shape, const Piece &piece) {
    if (piece)
      shape[piece->first] = Dim(shape[piece->first].value() / piece->second);
    return shape;
  }
  Attribute pieceAttr(const Piece &piece) {
    return builder.getDenseI64ArrayAttr({static_cast<int64_t>(piece->first), piece->second});
  }

  void recordResults() {
    Operation *terminator = function.getBody().front().getTerminator();
    for (auto [index, value] : llvm::enumerate(terminator->getOperands()))
      if (Piece piece = division.of(value)) {
        const unsigned number = static_cast<unsigned>(index);
        function.setResultAttr(number, nn::shardAttr, pieceAttr(piece));
        function.setResultAttr(number, nn::dimsAttr,
                               nn::dimsToAttr(function.getContext(), localShape(shapes[value], piece)));
      }
  }

  void shardArgument(BlockArgument argument) {
    Piece piece = division.of(argument);
    local[argument] = localShape(shapes[argument], piece);
    if (!piece)
      return;
    argument.setType(nn::typeOf(local[argument], elementType(argument)));
    function.setArgAttr(argument.getArgNumber(), nn::shardAttr, pieceAttr(piece));
    function.setArgAttr(argument.getArgNumber(), nn::dimsAttr,
                        nn::dimsToAttr(function.getContext(), local[argument]));
  }

  /// The rank's piece, or all, of a weight, a constant or a slice of one.
  Value take(Value whole, const Piece &piece) {
    DimShape starts(shapes[whole].size(), Dim(0)), sizes = localShape(shapes[whole], piece);
    if (piece) {
      const auto [axis, parts] = *piece;
      Dim number = Dim::symbol(std::string(rankSymbol));
      starts[axis] = (parts == ranks ? number : (number * Dim(parts)).floorDiv(Dim(ranks))) * sizes[axis];
    }
    if (Value part = loadPart(whole, starts, sizes))
      return part;
    if (!piece)
      return whole;
    MLIRContext *context = function.getContext();
    return make(whole.getLoc(), nn::SliceOp::getOperationName(), whole,
                {builder.getNamedAttr("starts", nn::dimsToAttr(context, starts)),
                 builder.getNamedAttr("sizes", nn::dimsToAttr(context, sizes)),
                 builder.getNamedAttr("steps",
                                      builder.getDenseI64ArrayAttr(SmallVector<int64_t>(sizes.size(), 1)))},
                elementType(whole))
        ->getResult(0);
  }

  /// A weight that loads nothing but `sizes` elements of `value` from `starts` on. Null where `value` is no weight, or a
  /// slice of one that something reads whole or that only a run knows, or where the part begins inside a byte.
  Value loadPart(Value value, DimShape starts, DimShape sizes) {
    auto slice = value.getDefiningOp<nn::SliceOp>();
    auto weight = (slice ? slice.getX() : value).getDefiningOp<nn::WeightOp>();
    if (!weight || weight.getStarts() || (!slice && sizes == shapes[value]))
      return {};
    if (slice) {
      DimShape offsets = nn::dimsFromAttr(slice.getStarts());
      auto isStatic = [](const Dim &dim) { return dim.isStatic(); };
      if (!llvm::all_of(weight->getUsers(), isShardLeaf) || !llvm::all_of(offsets, isStatic) ||
          !llvm::all_of(sizes, isStatic) || !llvm::all_of(slice.getSteps(), [](int64_t step) { return step == 1; }))
        return {};
      for (auto [start, offset] : llvm::zip(starts, offsets))
        start = start + offset;
    }
    if (elementType(value).getIntOrFloatBitWidth() == 4 && !liesInWholeBytes(weight.shapeInFile(), starts, sizes)) {
      noteMiss(weight, "shard", "every rank loads all of it: pieces of 4-bit elements would begin inside a byte");
      return {};
    }
    auto part = nn::WeightOp::create(builder, weight.getLoc(), nn::typeOf(sizes, elementType(value)), weight.getName(),
                                     weight.getPath(), weight.getOffset(), weight.getLength(),
                                     builder.getDenseI64ArrayAttr(weight.shapeInFile()),
                                     nn::dimsToAttr(function.getContext(), starts));
    local[part] = sizes;
    return part;
  }

  /// Whether every run of the part begins and ends at an even element.
  static bool liesInWholeBytes(ArrayRef<int64_t> whole, ArrayRef<Dim> starts, ArrayRef<Dim> sizes) {
    int64_t stride = 1;
    for (size_t axis = whole.size(); axis-- > 0; stride *= whole[axis])
      if (!(sizes[axis] == Dim(whole[axis])) &&
          !((starts[axis] * Dim(stride)).knownMultipleOf(2) && (sizes[axis] * Dim(stride)).knownMultipleOf(2) &&
            stride * whole[axis] % 2 == 0))
        return false;
    return true;
  }

  Operation *make(Location location, StringRef name, ValueRange operands, ArrayRef<NamedAttribute> attributes,
                  ArrayRef<Type> elementTypes) {
    SmallVector<DimShape> operandShapes, resultShapes;
    for (Value operand : operands)
      operandShapes.push_back(local.lookup(operand));
    SmallVector<nn::ShapeContext::Equality> equalities;
    std::string error;
    Operation *made = nn::createInferred(builder, location, name, operands, operandShapes, attributes,
                                         elementTypes, resultShapes, equalities, error);
    if (!made) {
      emitError(location) << name << " on one rank: " << error;
      return nullptr;
    }
    for (auto [result, shape] : llvm::zip(made->getResults(), resultShapes))
      local[result] = shape;
    return made;
  }

  LogicalResult shard(Operation *op) {
    builder.setInsertionPointAfter(op);
    if (isShardLeaf(op)) {
      Value whole = op->getResult(0);
      local[whole] = shapes[whole];
      Value part = take(whole, pieces[whole]);
      if (part == whole)
        return success();
      whole.replaceUsesWithIf(part, [&](OpOperand &use) {
        return use.getOwner() != part.getDefiningOp() && !isShardLeaf(use.getOwner()); // slices take their own pieces
      });
      return success();
    }
    NamedAttrList attributes(op->getAttrs());
    for (StringRef name : {"shape", "sizes"}) // of reshape, expand and slice: the dims of the result
      if (auto dims = llvm::dyn_cast_or_null<ArrayAttr>(attributes.get(name)))
        if (Piece piece = pieces[op->getResult(0)])
          attributes.set(name,
                         nn::dimsToAttr(function.getContext(), localShape(nn::dimsFromAttr(dims), piece)));
    SmallVector<Type> elementTypes;
    for (Value result : op->getResults())
      elementTypes.push_back(elementType(result));
    Operation *made =
        make(op->getLoc(), op->getName().getStringRef(), op->getOperands(), attributes, elementTypes);
    if (!made)
      return failure();
    if (auto product = llvm::dyn_cast<nn::MatmulOp>(op); product && division.isPartial(product)) {
      noteRaised(op, "shard");
      made = make(op->getLoc(), nn::AllReduceOp::getOperationName(), made->getResult(0), {}, elementTypes);
      if (!made)
        return failure();
    }
    op->replaceAllUsesWith(made->getResults());
    op->erase();
    return success();
  }

  func::FuncOp function;
  const nn::SymbolicShapes &shapes; ///< of the whole graph
  const Division &division;
  const int64_t ranks;
  OpBuilder builder;
  DenseMap<Value, DimShape> local; ///< of one rank's values
  DenseMap<Value, Piece> pieces;
};

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
    if (!function.getOps<nn::AllReduceOp>().empty())
      return function.emitError() << "holds collectives already: it is one rank's graph";
    auto table = ShapeTable::compute(function);
    if (failed(table))
      return failure();
    unpackProjections(function, *table, [](ArrayRef<nn::SliceOp>) { return true; });
    auto shapes = nn::SymbolicShapes::compute(function);
    if (failed(shapes))
      return failure();
    AxisClasses classes(function, *shapes);
    Division division(classes, *shapes, ranks);
    division.choose();
    if (failed(Sharder(function, *shapes, division, ranks).run()))
      return failure();
    eraseDeadOps(function);
    return success();
  }
};

} // namespace

} // namespace fusion
