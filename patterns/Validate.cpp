// The checks that MLIR leaves out: a misspelt op name would never match, an unknown guard would call another.
#include "patterns/Validate.h"

#include "ir/dialect/Dialect.h"
#include "patterns/Guards.h"

#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace fusion {

namespace {
/// Each doubles the ways in which a pattern is tried.
constexpr size_t mostCommutative = 6;

std::string at(Location location) {
  if (auto line = llvm::dyn_cast<FileLineColLoc>(location))
    return llvm::formatv("{0}:{1}:{2}: ", line.getFilename().getValue(), line.getLine(), line.getColumn())
        .str();
  return {};
}

Error wrong(Operation *op, const Twine &message) { return badInput(at(op->getLoc()) + message.str()); }

/// The kinds that the pattern's constraints give an op.
SmallVector<const OpKind *> kindsOf(pdl::OperationOp op) {
  SmallVector<const OpKind *> kinds;
  for (Operation *user : op->getUsers())
    if (auto constraint = llvm::dyn_cast<pdl::ApplyNativeConstraintOp>(user))
      if (const OpKind *kind = findOpKind(constraint.getName()))
        kinds.push_back(kind);
  return kinds;
}

Status checkUnnamed(pdl::OperationOp op) {
  const auto kinds = kindsOf(op);
  if (kinds.size() == 1 && op.getAttributeValueNames().empty())
    return {};
  if (kinds.size() == 1)
    return wrong(op, "an op without a name cannot have attributes: they depend on the op");
  SmallVector<StringRef> names =
      llvm::map_to_vector(opKinds(), [](const OpKind &kind) { return kind.guard; });
  return wrong(op, "an op without a name needs " + Twine(kinds.empty() ? "" : "only ") +
                       "one constraint that says what it is: " + llvm::join(names, ", "));
}

Status checkOperation(pdl::OperationOp op) {
  for (auto [index, value] : llvm::enumerate(op.getOperandValues()))
    if (value.getDefiningOp<pdl::OperandsOp>() && index + 1 != op.getOperandValues().size())
      return wrong(op, "only the last operand of an op can be a ValueRange");
  auto name = op.getOpName();
  if (!name)
    return checkUnnamed(op);
  auto registered = RegisteredOperationName::lookup(*name, op->getContext());
  if (!registered)
    return wrong(op, "there is no op '" + *name + "'");
  if (!kindsOf(op).empty())
    return wrong(op, kindsOf(op).front()->guard + " is for ops without a name: op<>(…)");
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

llvm::DenseMap<Operation *, WantedOp> wantedOps(pdl::PatternOp pattern) {
  llvm::DenseMap<Operation *, WantedOp> wanted;
  for (auto op : pattern.getBodyRegion().getOps<pdl::OperationOp>())
    wanted[op] = op.getOpName() ? WantedOp{op.getOpName()->str()} : WantedOp{{}, kindsOf(op).front()};
  return wanted;
}

/// A guard must exist; one that says what an op is, is given that op.
static Status checkConstraint(pdl::ApplyNativeConstraintOp constraint) {
  if (constraint.getIsNegated() || constraint->getNumResults())
    return wrong(constraint, "guards can be neither negated nor return values");
  if (findOpKind(constraint.getName())) {
    const bool isOp =
        constraint.getArgs().size() == 1 && constraint.getArgs()[0].getDefiningOp<pdl::OperationOp>();
    return isOp ? Status() : wrong(constraint, constraint.getName() + " takes an op");
  }
  if (!findGuard(constraint.getName()))
    return wrong(constraint, "there is no guard '" + constraint.getName() +
                                 "'; known: " + llvm::join(guardNames(), ", "));
  for (Value argument : constraint.getArgs())
    if (llvm::isa<pdl::RangeType>(argument.getType()))
      return wrong(constraint, constraint.getName() + " takes single values, not a ValueRange");
  return {};
}

static Status checkRewrite(pdl::ApplyNativeRewriteOp rewrite) {
  if (!rewrite.getName().starts_with("group") || rewrite->getNumResults())
    return wrong(rewrite, "the only rewrite is group: there is no '" + rewrite.getName() + "'");
  for (Value argument : rewrite.getArgs())
    if (!argument.getDefiningOp<pdl::OperationOp>())
      return wrong(rewrite, "group takes ops");
  return {};
}

static Status checkOp(Operation *op) {
  if (auto operation = llvm::dyn_cast<pdl::OperationOp>(op))
    return checkOperation(operation);
  if (auto constraint = llvm::dyn_cast<pdl::ApplyNativeConstraintOp>(op))
    return checkConstraint(constraint);
  if (auto rewrite = llvm::dyn_cast<pdl::ApplyNativeRewriteOp>(op))
    return checkRewrite(rewrite);
  if (llvm::isa<pdl::PatternOp, pdl::RewriteOp, pdl::OperandOp, pdl::OperandsOp, pdl::TypeOp, pdl::TypesOp,
                pdl::ResultOp, pdl::ResultsOp, pdl::AttributeOp>(op))
    return {};
  return wrong(op, op->getName().getStringRef() + " is not supported in fusion patterns");
}

Status validatePattern(pdl::PatternOp pattern) {
  Status status;
  pattern.walk([&](Operation *op) {
    status = checkOp(op);
    return status ? WalkResult::advance() : WalkResult::interrupt();
  });
  if (!status)
    return status;
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
