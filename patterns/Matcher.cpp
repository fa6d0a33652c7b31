#include "patterns/Matcher.h"

#include "ir/dialect/Types.h"
#include "patterns/Guards.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace mlir;

namespace fusion {

namespace {
class Interpreter {
public:
  /// `swapped`: the commutative ops of the pattern whose operands are taken in the other order.
  Interpreter(const FusionPattern &pattern, llvm::SmallPtrSet<Operation *, 4> swapped)
      : pattern(pattern), swapped(std::move(swapped)) {}

  MatchResult run(Operation *root) {
    MatchResult result;
    if (matchOp(pattern.root, root)) {
      checkGuards();
      if (reason.empty()) {
        result.matched = true;
        for (Operation *op : groupedOps())
          result.ops.push_back(op);
      }
    }
    if (!result.matched) {
      llvm::SmallPtrSet<Operation *, 8> distinct;
      for (auto [wanted, op] : ops)
        if (distinct.insert(op).second)
          result.ops.push_back(op);
    }
    result.opsFound = found;
    result.reason = reason;
    return result;
  }

private:
  bool fail(Location location, const Twine &text) {
    reason = text.str();
    if (auto line = llvm::dyn_cast<FileLineColLoc>(location))
      reason += llvm::formatv(" [{0}:{1}:{2}]", llvm::sys::path::filename(line.getFilename().getValue()),
                              line.getLine(), line.getColumn())
                    .str();
    return false;
  }

  bool matchOp(pdl::OperationOp wanted, Operation *op) {
    auto [bound, fresh] = ops.try_emplace(wanted, op);
    if (!fresh)
      return bound->second == op || fail(wanted.getLoc(), "the pattern wants one op in two places");
    ++found;
    for (auto [name, value] : llvm::zip(wanted.getAttributeValueNames(), wanted.getAttributeValues()))
      if (!matchAttribute(value, op, llvm::cast<StringAttr>(name)))
        return false;
    OperandRange operands = wanted.getOperandValues();
    if (operands.empty())
      return true;
    // A ValueRange at the end takes what is left.
    const bool open = llvm::isa_and_nonnull<pdl::OperandsOp>(operands.back().getDefiningOp());
    const size_t fixed = operands.size() - (open ? 1 : 0);
    if (open ? op->getNumOperands() < fixed : op->getNumOperands() != fixed)
      return fail(wanted.getLoc(), op->getName().getStringRef() + " has " + Twine(op->getNumOperands()) +
                                       " operands, pattern wants " + Twine(fixed));
    const bool swap = swapped.contains(wanted) && fixed == 2;
    for (size_t index = 0; index < fixed; ++index)
      if (!matchOperand(operands[index], op, static_cast<unsigned>(swap ? 1 - index : index)))
        return false;
    return true;
  }

  bool matchOperand(Value wanted, Operation *user, unsigned index) {
    Value actual = user->getOperand(index);
    auto [bound, fresh] = values.try_emplace(wanted, actual);
    if (!fresh)
      return bound->second == actual ||
             fail(wanted.getLoc(), "operand " + Twine(index) + " of " + user->getName().getStringRef() +
                                       " is not the value that the pattern uses twice");
    unsigned number = 0;
    pdl::OperationOp producer;
    if (auto result = wanted.getDefiningOp<pdl::ResultOp>()) {
      producer = result.getParent().getDefiningOp<pdl::OperationOp>();
      number = result.getIndex();
    } else if (auto results = wanted.getDefiningOp<pdl::ResultsOp>()) {
      producer = results.getParent().getDefiningOp<pdl::OperationOp>();
    }
    if (!producer)
      return true;
    auto defined = llvm::dyn_cast<OpResult>(actual);
    std::string what = "operand " + std::to_string(index) + " of " + user->getName().getStringRef().str();
    const WantedOp &kind = pattern.wanted.at(producer);
    auto mismatch = [&](const std::string &actual) {
      return fail(producer.getLoc(),
                  what + " is " + actual + ", pattern wants " + kind.shown(user->getContext()));
    };
    if (!defined)
      return mismatch("a graph input");
    Operation *op = defined.getOwner();
    if (!kind.accepts(op) || defined.getResultNumber() != number)
      return mismatch("produced by " + shownName(op));
    if (op->getBlock() != user->getBlock())
      return fail(producer.getLoc(), what + " is produced in another block");
    return matchOp(producer, op);
  }

  bool matchAttribute(Value wanted, Operation *op, StringAttr name) {
    Attribute actual = op->getAttr(name);
    if (auto registered = op->getRegisteredInfo(); !actual && registered)
      if (auto property = op->getInherentAttr(name))
        actual = *property;
    auto attribute = wanted.getDefiningOp<pdl::AttributeOp>();
    attributes[wanted] = actual;
    if (attribute && attribute.getValueAttr() && attribute.getValueAttr() != actual)
      return fail(attribute.getLoc(), "attribute " + name.getValue() + " of " + op->getName().getStringRef() +
                                          " differs from the pattern's");
    return true;
  }

  /// All guards run, so that a near miss lists everything that stands in its way.
  void checkGuards() {
    for (auto constraint :
         pdl::PatternOp(pattern.pattern).getBodyRegion().getOps<pdl::ApplyNativeConstraintOp>()) {
      if (findOpKind(constraint.getName()))
        continue; // looked at where the op was matched
      SmallVector<GuardArgument> arguments;
      for (Value argument : constraint.getArgs())
        arguments.push_back(resolve(argument));
      if (auto why = (*findGuard(constraint.getName()))(arguments)) {
        reason += reason.empty() ? "guard " : "; ";
        reason += constraint.getName().str() + ": " + *why;
      }
    }
  }

  GuardArgument resolve(Value argument) {
    if (auto op = argument.getDefiningOp<pdl::OperationOp>())
      return ops.lookup(op);
    if (auto result = argument.getDefiningOp<pdl::ResultOp>())
      return Value(
          ops.lookup(result.getParent().getDefiningOp<pdl::OperationOp>())->getResult(result.getIndex()));
    if (auto attribute = argument.getDefiningOp<pdl::AttributeOp>())
      return attribute.getValueAttr() ? attribute.getValueAttr() : attributes.lookup(argument);
    return values.lookup(argument);
  }

  llvm::SetVector<Operation *> groupedOps() {
    llvm::SetVector<Operation *> members;
    pdl::PatternOp(pattern.pattern).getRewriter().getBodyRegion().walk([&](pdl::ApplyNativeRewriteOp group) {
      for (Value argument : group.getArgs())
        members.insert(ops.lookup(argument.getDefiningOp<pdl::OperationOp>()));
    });
    return members;
  }

  const FusionPattern &pattern;
  llvm::SmallPtrSet<Operation *, 4> swapped;
  llvm::DenseMap<Operation *, Operation *> ops; // pdl.operation -> graph op
  llvm::DenseMap<Value, Value> values;
  llvm::DenseMap<Value, Attribute> attributes;
  unsigned found = 0;
  std::string reason;
};
} // namespace

llvm::SmallVector<MatchResult> matchAll(const FusionPattern &pattern, Operation *root) {
  llvm::SmallVector<MatchResult> matches;
  MatchResult nearest;
  for (uint32_t variant = 0; variant < 1u << pattern.commutative.size(); ++variant) {
    llvm::SmallPtrSet<Operation *, 4> swapped;
    for (auto [index, op] : llvm::enumerate(pattern.commutative))
      if (variant >> index & 1)
        swapped.insert(op);
    MatchResult result = Interpreter(pattern, std::move(swapped)).run(root);
    if (result.matched)
      matches.push_back(std::move(result));
    else if (variant == 0 || result.opsFound > nearest.opsFound)
      nearest = std::move(result);
  }
  if (matches.empty())
    matches.push_back(std::move(nearest));
  return matches;
}

MatchResult match(const FusionPattern &pattern, Operation *root) { return matchAll(pattern, root).front(); }

} // namespace fusion
