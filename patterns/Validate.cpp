// The checks that MLIR leaves out: a misspelt op name would never match, an unknown guard would call another.
#include "patterns/Validate.h"

#include "ir/dialect/Dialect.h"
#include "patterns/Guards.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace fusion {

namespace {
/// Each doubles the ways in which a pattern is tried.
constexpr size_t mostCommutative = 6;

std::string at(Location location) {
  if (auto line = llvm::dyn_cast<FileLineColLoc>(location))
    return llvm::formatv("{0}:{1}:{2}: ", line.getFilename().getValue(), line.getLine(), line.getColumn()).str();
  return {};
}

Error wrong(Operation *op, const Twine &message) { return badInput(at(op->getLoc()) + message.str()); }

Status checkOperation(pdl::OperationOp op) {
  auto name = op.getOpName();
  if (!name)
    return wrong(op, "a pattern must name each op");
  auto registered = RegisteredOperationName::lookup(*name, op->getContext());
  if (!registered)
    return wrong(op, "there is no op '" + *name + "'");
  for (auto [index, value] : llvm::enumerate(op.getOperandValues()))
    if (value.getDefiningOp<pdl::OperandsOp>() && index + 1 != op.getOperandValues().size())
      return wrong(op, "only the last operand of an op can be a ValueRange");
  const bool open =
      !op.getOperandValues().empty() && op.getOperandValues().back().getDefiningOp<pdl::OperandsOp>();
  if (!op.getOperandValues().empty() && !open) {
    unsigned wanted = op.getOperandValues().size();
    if (registered->hasTrait<OpTrait::NOperands<2>::Impl>() && wanted != 2)
      return wrong(op, *name + " has 2 operands, the pattern gives " + Twine(wanted));
    if (registered->hasTrait<OpTrait::OneOperand>() && wanted != 1)
      return wrong(op, *name + " has 1 operand, the pattern gives " + Twine(wanted));
  }
  ArrayRef<StringAttr> known = registered->getAttributeNames();
  for (Attribute attribute : op.getAttributeValueNames())
    if (!llvm::is_contained(known, llvm::cast<StringAttr>(attribute)))
      return wrong(op, *name + " has no attribute '" + llvm::cast<StringAttr>(attribute).getValue() + "'");
  return {};
}
} // namespace

std::vector<Operation *> commutativeOps(pdl::PatternOp pattern) {
  std::vector<Operation *> ops;
  for (auto op : pattern.getBodyRegion().getOps<pdl::OperationOp>()) {
    auto registered = RegisteredOperationName::lookup(op.getOpName().value_or(""), op.getContext());
    if (registered && registered->hasTrait<OpTrait::IsCommutative>() && op.getOperandValues().size() == 2)
      ops.push_back(op);
  }
  return ops;
}

Status validatePattern(pdl::PatternOp pattern) {
  std::optional<Error> failure;
  auto record = [&](Error error) {
    failure = std::move(error);
    return WalkResult::interrupt();
  };
  pattern.walk([&](Operation *op) -> WalkResult {
    if (auto operation = llvm::dyn_cast<pdl::OperationOp>(op)) {
      Status status = checkOperation(operation);
      return status ? WalkResult::advance() : record(status.error());
    }
    if (auto constraint = llvm::dyn_cast<pdl::ApplyNativeConstraintOp>(op)) {
      if (!findGuard(constraint.getName()))
        return record(wrong(op, "there is no guard '" + constraint.getName() + "'; known: " +
                                    llvm::join(guardNames(), ", ")));
      if (constraint.getIsNegated() || constraint->getNumResults())
        return record(wrong(op, "guards can be neither negated nor return values"));
      return WalkResult::advance();
    }
    if (auto rewrite = llvm::dyn_cast<pdl::ApplyNativeRewriteOp>(op)) {
      if (!rewrite.getName().starts_with("group") || rewrite->getNumResults())
        return record(wrong(op, "the only rewrite is group: there is no '" + rewrite.getName() + "'"));
      for (Value argument : rewrite.getArgs())
        if (!argument.getDefiningOp<pdl::OperationOp>())
          return record(wrong(op, "group takes ops"));
      return WalkResult::advance();
    }
    if (llvm::isa<pdl::PatternOp, pdl::RewriteOp, pdl::OperandOp, pdl::OperandsOp, pdl::TypeOp, pdl::TypesOp, pdl::ResultOp,
                  pdl::ResultsOp, pdl::AttributeOp>(op))
      return WalkResult::advance();
    return record(wrong(op, op->getName().getStringRef() + " is not supported in fusion patterns"));
  });
  if (failure)
    return *failure;
  if (commutativeOps(pattern).size() > mostCommutative)
    return wrong(pattern, "a pattern can hold " + Twine(mostCommutative) + " commutative ops at most");
  pdl::RewriteOp rewrite = pattern.getRewriter();
  unsigned groups = 0;
  if (!rewrite.getBodyRegion().empty())
    rewrite.getBodyRegion().walk([&](pdl::ApplyNativeRewriteOp) { ++groups; });
  if (groups != 1)
    return wrong(pattern, "a pattern must call group once");
  if (!rewrite.getRoot() || !rewrite.getRoot().getDefiningOp<pdl::OperationOp>())
    return wrong(pattern, "the rewrite must name its root op");
  return {};
}

} // namespace fusion
