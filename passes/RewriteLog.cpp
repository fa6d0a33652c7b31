#include "passes/RewriteLog.h"

#include "ir/dialect/Loop.h"
#include "ir/dialect/Types.h"
#include "passes/ShapeTable.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fusion {

namespace {
thread_local RewriteLog *current = nullptr;

using Ops = llvm::SetVector<Operation *>;
using Values = llvm::SetVector<Value>;

/// Weights become arguments, as a check needs no files, and so do results of loops, whose bodies stand
/// elsewhere.
bool isLeaf(Operation *producer) { return !producer || llvm::isa<nn::WeightOp, nn::LoopOp>(producer); }

/// The ops that `results` are computed by, producers first, from `inputs` and from ops in `known`, which are
/// not among them. Leaves are added to `leaves`.
Ops producersOf(ValueRange results, const Values &inputs, const Ops &known, Values *leaves = nullptr) {
  Ops ordered;
  llvm::DenseSet<Operation *> entered;
  SmallVector<std::pair<Operation *, unsigned>> stack;
  auto enter = [&](Value value) {
    Operation *producer = value.getDefiningOp();
    if (inputs.contains(value))
      return;
    if (isLeaf(producer)) {
      if (leaves)
        leaves->insert(value);
    } else if (!known.contains(producer) && entered.insert(producer).second) {
      stack.push_back({producer, 0});
    }
  };
  for (Value result : results) {
    enter(result);
    while (!stack.empty()) {
      auto &[op, next] = stack.back();
      if (next == op->getNumOperands()) {
        ordered.insert(op);
        stack.pop_back();
      } else {
        enter(op->getOperand(next++));
      }
    }
  }
  return ordered;
}

/// What `after` reads of that which exists without it.
Values readBy(ValueRange after, const Ops &built, const Ops &old) {
  Values inputs;
  auto see = [&](Value value) {
    Operation *producer = value.getDefiningOp();
    if (!llvm::isa_and_nonnull<nn::ConstantOp>(producer) && (isLeaf(producer) || old.contains(producer)))
      inputs.insert(value);
  };
  for (Operation *op : built)
    llvm::for_each(op->getOperands(), see);
  llvm::for_each(after, see);
  return inputs;
}

/// Whether the value is known: a rewrite may depend on what it is, as that of a product with ones.
bool followsFromConstants(Value value, int depth = 8) {
  Operation *op = value.getDefiningOp();
  if (!op || isLeaf(op) || depth == 0)
    return false;
  if (llvm::isa<nn::ConstantOp, nn::DimConstantOp>(op))
    return true;
  return op->getNumOperands() > 0 && llvm::all_of(op->getOperands(), [&](Value operand) {
           return followsFromConstants(operand, depth - 1);
         });
}

/// Random inputs are independent of each other. An input that is computed from what `before` reads too, as
/// one of two equal slices is, is computed in both functions instead. Returns the ops between the inputs and
/// `before`.
Ops separate(Values &inputs, Operation *before) {
  inputs.remove_if([](Value input) { return followsFromConstants(input); });
  while (true) {
    Values leaves;
    Ops replaced = producersOf(before->getResults(), inputs, {}, &leaves);
    auto isShared = [&](Value value) {
      return leaves.contains(value) || (value.getDefiningOp() && replaced.contains(value.getDefiningOp()));
    };
    auto dependent = llvm::find_if(inputs, [&](Value input) {
      Operation *producer = input.getDefiningOp();
      return !isLeaf(producer) && llvm::any_of(producer->getOperands(), isShared);
    });
    if (dependent == inputs.end()) {
      inputs.insert(leaves.begin(), leaves.end());
      return replaced;
    }
    Value input = *dependent;
    inputs.remove(input);
    for (Value operand : input.getDefiningOp()->getOperands())
      if (!followsFromConstants(operand))
        inputs.insert(operand);
  }
}

void addSymbols(ArrayRef<Dim> dims, std::set<std::string> &symbols) {
  for (const Dim &dim : dims)
    for (const std::string &symbol : dim.symbols())
      symbols.insert(symbol);
}

/// One dim for each symbol that the ops, or the shapes of the inputs, speak of.
DimShape symbolsOf(const Ops &ops, const Values &inputs, ShapeTable &shapes) {
  std::set<std::string> symbols;
  for (Value input : inputs)
    addSymbols(shapes.of(input), symbols);
  for (Operation *op : ops) {
    for (Value result : op->getResults())
      addSymbols(shapes.of(result), symbols);
    for (NamedAttribute attribute : op->getAttrs())
      if (auto list = llvm::dyn_cast<ArrayAttr>(attribute.getValue()); list && nn::isDimsAttr(list))
        addSymbols(nn::dimsFromAttr(list), symbols);
  }
  return DimShape(llvm::map_iterator(symbols.begin(), Dim::symbol),
                  llvm::map_iterator(symbols.end(), Dim::symbol));
}

void addFunction(OpBuilder &builder, Location location, StringRef name, const Values &inputs,
                 const DimShape &symbols, const Ops &ops, ValueRange results, ShapeTable &shapes) {
  MLIRContext *context = builder.getContext();
  SmallVector<Type> types;
  for (Value input : inputs)
    types.push_back(input.getType());
  types.push_back(
      RankedTensorType::get(SmallVector<int64_t>(symbols.size(), ShapedType::kDynamic), builder.getI1Type()));
  SmallVector<Type> resultTypes(results.getTypes());
  auto function = func::FuncOp::create(builder, location, name, builder.getFunctionType(types, resultTypes));
  Block *block = function.addEntryBlock();
  IRMapping mapping;
  for (auto [index, input] : llvm::enumerate(inputs)) {
    mapping.map(input, block->getArgument(index));
    function.setArgAttr(index, nn::dimsAttr, nn::dimsToAttr(context, shapes.of(input)));
  }
  function.setArgAttr(static_cast<unsigned>(inputs.size()), nn::dimsAttr, nn::dimsToAttr(context, symbols));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(block);
  for (Operation *op : ops)
    builder.clone(*op, mapping);
  SmallVector<Value> returned;
  for (Value result : results)
    returned.push_back(mapping.lookup(result));
  func::ReturnOp::create(builder, location, returned);
}

/// The named op among those built last, past a view of its result; null if the rewrite makes none.
Operation *namedOp(Value after) {
  Operation *op = after.getDefiningOp();
  if (auto view = llvm::dyn_cast_or_null<nn::ReshapeOp>(op))
    op = view.getX().getDefiningOp();
  return op && (op->hasTrait<nn::Activation>() ||
                llvm::isa<nn::Norm, nn::RopeOp, nn::AttentionOp, nn::ExpertMatmulOp>(op))
             ? op
             : nullptr;
}

/// Whether experts' outputs are summed by one op now: in another order and with fewer roundings.
bool sumsExperts(Value after, const Ops &made) {
  return after.getDefiningOp<nn::ReduceOp>() && llvm::any_of(made, llvm::IsaPred<nn::ExpertMatmulOp>);
}

/// Whether statistics of f16 or bf16 were computed in that type.
bool hadNarrowStatistics(const Ops &replaced) {
  return llvm::any_of(replaced, [](Operation *op) {
    return llvm::isa<nn::ReduceOp>(op) &&
           (elementType(op->getResult(0)).isF16() || elementType(op->getResult(0)).isBF16());
  });
}
} // namespace

void RewriteLog::record(Operation *before, ValueRange after, ShapeTable &shapes) {
  Ops old = producersOf(before->getResults(), {}, {});
  Values inputs = readBy(after, producersOf(after, {}, old), old);
  Ops replaced = separate(inputs, before);
  Ops made = producersOf(after, inputs, {});
  Ops all = replaced;
  all.insert(made.begin(), made.end());
  DimShape symbols = symbolsOf(all, inputs, shapes);

  Operation *named = namedOp(after.front());
  Rewrite entry;
  entry.location = locationName(before->getLoc());
  entry.raises = sumsExperts(after.front(), made) ||
                 (named && (named->hasTrait<nn::Activation>() || llvm::isa<nn::AttentionOp>(named) ||
                            (llvm::isa<nn::Norm>(named) && hadNarrowStatistics(replaced))));
  entry.name =
      named ? named->getName().stripDialect().str() : before->getName().getStringRef().str() + " rewritten";
  entry.module = ModuleOp::create(before->getLoc());
  OpBuilder builder(before->getContext());
  builder.setInsertionPointToEnd(entry.module->getBody());
  addFunction(builder, before->getLoc(), "before", inputs, symbols, replaced, before->getResults(), shapes);
  addFunction(builder, before->getLoc(), "after", inputs, symbols, made, after, shapes);
  std::string text;
  llvm::raw_string_ostream out(text);
  entry.module->print(out);
  if (seen.insert(std::move(text)).second)
    kept.push_back(std::move(entry));
}

RewriteLog::Scope::Scope(RewriteLog &log) : outer(current) { current = &log; }
RewriteLog::Scope::~Scope() { current = outer; }

void recordRewrite(Operation *before, ValueRange after, ShapeTable &shapes) {
  bool computes = llvm::isa<nn::ShapeInference>(before) && before->getNumOperands() > 0 &&
                  llvm::all_of(after, [](Value value) { return bool(value); });
  if (current && computes && !after.empty())
    current->record(before, after, shapes);
}

} // namespace fusion
