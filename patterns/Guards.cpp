#include "patterns/Guards.h"

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace fusion {

namespace {
template <class T> std::string printed(T thing) {
  std::string text;
  llvm::raw_string_ostream(text) << thing;
  return text;
}

std::optional<Value> valueOf(const GuardArgument &argument) {
  if (auto *value = std::get_if<Value>(&argument))
    return *value;
  if (auto *op = std::get_if<Operation *>(&argument); op && (*op)->getNumResults() == 1)
    return (*op)->getResult(0);
  return std::nullopt;
}

/// Wraps a guard over values; anything else among the arguments is a misuse that says so.
template <class Check> Guard overValues(size_t count, Check check) {
  return [=](llvm::ArrayRef<GuardArgument> arguments) -> std::optional<std::string> {
    llvm::SmallVector<Value> values;
    for (const GuardArgument &argument : arguments)
      if (auto value = valueOf(argument))
        values.push_back(*value);
    if (values.size() != arguments.size() || values.size() != count)
      return "takes " + std::to_string(count) + " values";
    return check(values);
  };
}

using Values = llvm::ArrayRef<Value>;

std::optional<std::string> sameElementType(Values values) {
  Type left = elementType(values[0]), right = elementType(values[1]);
  if (left == right)
    return std::nullopt;
  return printed(left) + " vs " + printed(right);
}

std::optional<std::string> hasOneUse(Values values) {
  if (values[0].hasOneUse())
    return std::nullopt;
  return std::to_string(llvm::range_size(values[0].getUses())) + " uses";
}

std::optional<std::string> staticLastDim(Values values) {
  auto type = tensorType(values[0]);
  if (type.getRank() > 0 && !type.isDynamicDim(type.getRank() - 1))
    return std::nullopt;
  return type.getRank() == 0 ? "a scalar" : "the last dim of " + printed(type) + " is known only at run time";
}

std::optional<std::string> sameShape(Values values) {
  // Dynamic dims count as equal here: that they are is the graph's own requirement.
  auto left = tensorType(values[0]), right = tensorType(values[1]);
  if (succeeded(verifyCompatibleShape(left, right)))
    return std::nullopt;
  return printed(left) + " vs " + printed(right);
}

std::optional<std::string> isFloat(Values values) {
  if (llvm::isa<FloatType>(elementType(values[0])))
    return std::nullopt;
  return printed(elementType(values[0])) + " is no float";
}

/// One scale for the whole tensor.
std::optional<std::string> perTensor(Values values) {
  auto type = tensorType(values[0]);
  if (type.hasStaticShape() && type.getNumElements() == 1)
    return std::nullopt;
  return printed(type) + " holds more than one number";
}

std::optional<std::string> isConstant(Values values) {
  Operation *op = values[0].getDefiningOp();
  if (nn::isStored(op))
    return std::nullopt;
  return op ? "produced by " + shownName(op) : "a graph input";
}

const llvm::StringMap<Guard> &guards() {
  static const llvm::StringMap<Guard> table = [] {
    llvm::StringMap<Guard> map;
    map["SameElementType"] = overValues(2, sameElementType);
    map["HasOneUse"] = overValues(1, hasOneUse);
    map["StaticLastDim"] = overValues(1, staticLastDim);
    map["SameShape"] = overValues(2, sameShape);
    map["IsFloat"] = overValues(1, isFloat);
    map["PerTensor"] = overValues(1, perTensor);
    map["IsConstant"] = overValues(1, isConstant);
    return map;
  }();
  return table;
}
} // namespace

const Guard *findGuard(llvm::StringRef name) {
  auto found = guards().find(name);
  return found == guards().end() ? nullptr : &found->second;
}

llvm::SmallVector<llvm::StringRef> guardNames() {
  llvm::SmallVector<llvm::StringRef> names;
  for (const auto &entry : guards())
    names.push_back(entry.getKey());
  for (const OpKind &kind : opKinds())
    names.push_back(kind.guard);
  llvm::sort(names);
  return names;
}

template <template <class> class Trait> static OpKind kindOfTrait(StringRef guard, StringRef article) {
  return {guard, article, [](Operation *op) { return op->hasTrait<Trait>(); },
          [](RegisteredOperationName name) { return name.hasTrait<Trait>(); }};
}

template <class Interface> static OpKind kindOfInterface(StringRef guard, StringRef article) {
  return {guard, article, [](Operation *op) { return llvm::isa<Interface>(op); },
          [](RegisteredOperationName name) { return name.hasInterface<Interface>(); }};
}

ArrayRef<OpKind> opKinds() {
  static const OpKind kinds[] = {kindOfTrait<nn::Activation>("IsActivation", "an activation"),
                                 kindOfInterface<nn::Norm>("IsNorm", "a norm"),
                                 kindOfInterface<nn::Quantize>("IsQuantize", "a quantisation")};
  return kinds;
}

const OpKind *findOpKind(StringRef guard) {
  auto *found = llvm::find_if(opKinds(), [&](const OpKind &kind) { return kind.guard == guard; });
  return found == opKinds().end() ? nullptr : found;
}

std::string describe(const OpKind &kind, MLIRContext *context) {
  llvm::SmallVector<StringRef> names;
  for (RegisteredOperationName name : context->getRegisteredOperations())
    if (kind.names(name))
      names.push_back(name.getStringRef());
  llvm::sort(names);
  return (kind.article + " (" + llvm::join(names, ", ") + ")").str();
}

} // namespace fusion
