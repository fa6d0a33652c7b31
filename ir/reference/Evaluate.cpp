// The table of reference functions, and running ops and blocks through it.
#include "ir/reference/Support.h"

#include "ir/dialect/Loop.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <new>

namespace fusion {

using reference::Call;

namespace {
const llvm::StringMap<reference::Function> &functions() {
  static const llvm::StringMap<reference::Function> table = [] {
    llvm::StringMap<reference::Function> all;
    for (llvm::ArrayRef<reference::Entry> family :
         {reference::pointwiseEntries(), reference::binaryEntries(), reference::dataEntries(),
          reference::gatherEntries(), reference::reduceEntries(), reference::sampleEntries(),
          reference::normEntries(), reference::matmulEntries(), reference::attentionEntries(),
          reference::linearAttentionEntries(), reference::quantizeEntries(), reference::loopEntries()})
      for (const reference::Entry &entry : family)
        all[entry.name] = entry.function;
    return all;
  }();
  return table;
}

Error locate(mlir::Operation *op, const Error &error) {
  std::string place = locationName(op->getLoc());
  std::string name = op->getName().getStringRef().str();
  return {error.kind, place.empty() ? fmt::format("{}: {}", name, error.message)
                                    : fmt::format("{} at {}: {}", name, place, error.message)};
}

/// The declared type of a value against the tensor that is to be it.
Status checkType(mlir::Value value, const Tensor &tensor, const char *what) {
  auto type = tensorType(value);
  bool fits = dtype(value) == tensor.type() && type.getRank() == tensor.rank();
  for (int64_t i = 0; fits && i < type.getRank(); ++i)
    fits = type.isDynamicDim(i) || type.getDimSize(i) == tensor.shape()[static_cast<size_t>(i)];
  if (fits)
    return {};
  std::string declared;
  llvm::raw_string_ostream(declared) << type;
  return badInput(fmt::format("{} is {} {}, which is not {}", what, name(tensor.type()),
                              shapeString(tensor.shape()), declared));
}

Result<std::vector<Tensor>> evaluateUnlocated(mlir::Operation *op, llvm::ArrayRef<Tensor> operands,
                                              const SymbolValues &symbols, const ReferenceOptions &options) {
  if (!hasReference(op->getName()))
    return badInput("the reference does not know this op");
  if (operands.size() != op->getNumOperands())
    return badInput(
        fmt::format("{} operands were given, {} are needed", operands.size(), op->getNumOperands()));
  for (auto [index, operand] : llvm::enumerate(operands))
    if (Status fits = checkType(op->getOperand(index), operand, "an operand"); !fits)
      return fits.error();
  Result<std::vector<Tensor>> results = badInput("");
  try {
    const Call call{op, operands, symbols, options};
    auto found = functions().find(op->getName().getStringRef());
    results = found == functions().end() ? evaluateFormula(call) : found->second(call);
  } catch (const std::bad_alloc &) {
    return environment("there is not enough memory for its result");
  }
  if (!results)
    return results;
  for (auto [index, result] : llvm::enumerate(*results))
    if (Status fits = checkType(op->getResult(index), result, "the result"); !fits)
      return fits.error();
  return results;
}
} // namespace

bool hasReferenceFunction(mlir::OperationName name) { return functions().contains(name.getStringRef()); }

bool hasReference(mlir::OperationName name) {
  return hasReferenceFunction(name) || reference::hasFormula(name);
}

Result<std::vector<Tensor>> evaluate(mlir::Operation *op, llvm::ArrayRef<Tensor> operands,
                                     const SymbolValues &symbols, const ReferenceOptions &options) {
  if (auto group = llvm::dyn_cast<GroupOp>(op))
    return evaluateRegion(group.getBody().front(), operands, symbols, options);
  auto results = evaluateUnlocated(op, operands, symbols, options);
  if (!results)
    return locate(op, results.error());
  return results;
}

Result<std::vector<Tensor>> evaluateRegion(mlir::Block &block, llvm::ArrayRef<Tensor> arguments,
                                           const SymbolValues &symbols, const ReferenceOptions &options) {
  if (arguments.size() != block.getNumArguments())
    return badInput(
        fmt::format("{} arguments were given, {} are needed", arguments.size(), block.getNumArguments()));
  struct Live {
    Tensor tensor;
    unsigned usesLeft;
  };
  llvm::DenseMap<mlir::Value, Live> live;
  auto define = [&](mlir::Value value, Tensor tensor) {
    if (auto uses = static_cast<unsigned>(llvm::range_size(value.getUses())))
      live[value] = {std::move(tensor), uses};
  };
  for (auto [argument, tensor] : llvm::zip(block.getArguments(), arguments))
    define(argument, tensor);
  for (mlir::Operation &op : block) {
    llvm::SmallVector<Tensor> operands;
    for (mlir::Value operand : op.getOperands()) {
      auto found = live.find(operand);
      if (found == live.end())
        return locate(&op, badInput("an operand is defined outside of the block"));
      operands.push_back(found->second.tensor);
      if (--found->second.usesLeft == 0)
        live.erase(found);
    }
    if (op.hasTrait<mlir::OpTrait::IsTerminator>())
      return std::vector<Tensor>(operands.begin(), operands.end());
    auto results = evaluate(&op, operands, symbols, options);
    if (!results)
      return results;
    for (auto [value, tensor] : llvm::zip(op.getResults(), *results))
      define(value, std::move(tensor));
  }
  return badInput("a block without a terminator");
}

std::optional<llvm::SmallVector<mlir::Attribute>> foldWithReference(mlir::Operation *op, size_t maxElements) {
  if (!hasReference(op->getName()) ||
      llvm::isa<nn::ConstantOp, nn::WeightOp, nn::AllReduceOp, nn::LoopOp>(op))
    return std::nullopt;
  for (mlir::Type type : op->getResultTypes()) {
    auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(type);
    if (!tensor)
      return std::nullopt;
    if (tensor.hasStaticShape() && static_cast<uint64_t>(tensor.getNumElements()) > maxElements)
      return std::nullopt;
  }
  llvm::SmallVector<Tensor> operands;
  for (mlir::Value operand : op->getOperands()) {
    auto constant = operand.getDefiningOp<nn::ConstantOp>();
    if (!constant || !llvm::isa<mlir::DenseElementsAttr>(constant.getValue()))
      return std::nullopt;
    operands.push_back(toTensor(constant.getValue()));
  }
  auto results = evaluate(op, operands, SymbolValues());
  if (!results)
    return std::nullopt;
  llvm::SmallVector<mlir::Attribute> attributes;
  for (const Tensor &tensor : *results) {
    if (static_cast<uint64_t>(tensor.size()) > maxElements)
      return std::nullopt;
    attributes.push_back(toAttribute(op->getContext(), tensor));
  }
  return attributes;
}

} // namespace fusion
