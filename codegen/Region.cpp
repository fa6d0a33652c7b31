#include "codegen/Region.h"

#include "ir/dialect/Formulas.h"
#include "ir/dialect/Mesh.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace fusion {

/// Ops whose schedules look at single elements: they take constants as literals, so these need no buffer.
static bool looksAtElements(Operation *op) {
  return llvm::isa<nn::ScalarFormula>(op) || op->hasTrait<nn::View>() || op->hasTrait<nn::Indexed>();
}

static bool isLiteral(Operation *op) {
  if (!op)
    return false;
  if (llvm::isa<nn::DimConstantOp>(op))
    return true;
  return llvm::isa<nn::ConstantOp>(op) && constantScalar(op->getResult(0)).has_value();
}

Region Region::of(GroupOp group) {
  Region region;
  region.anchor = group;
  region.pattern = group.getPattern().str();
  Block &body = group.getBody().front();
  for (Operation &op : body.without_terminator())
    region.ops.push_back(&op);
  region.inputs.assign(body.args_begin(), body.args_end());
  region.outputs.assign(body.getTerminator()->operand_begin(), body.getTerminator()->operand_end());
  return region;
}

SmallVector<Operation *> Region::opsFor(ArrayRef<Value> results, ArrayRef<Value> made) const {
  llvm::DenseSet<Value> needed(results.begin(), results.end());
  SmallVector<Operation *> found;
  for (Operation *op : llvm::reverse(ops)) {
    auto isNeeded = [&](Value result) {
      return needed.contains(result) && !llvm::is_contained(made, result);
    };
    if (llvm::none_of(op->getResults(), isNeeded))
      continue;
    found.push_back(op);
    needed.insert(op->operand_begin(), op->operand_end());
  }
  std::reverse(found.begin(), found.end());
  return found;
}

Region Region::of(Operation *op) {
  Region region;
  region.anchor = op;
  bool inlines = looksAtElements(op);
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    if (inlines && isLiteral(producer)) {
      if (!llvm::is_contained(region.ops, producer))
        region.ops.push_back(producer);
    } else if (!llvm::is_contained(region.inputs, operand)) {
      region.inputs.push_back(operand);
    }
  }
  region.ops.push_back(op);
  region.outputs.assign(op->result_begin(), op->result_end());
  return region;
}

int64_t Region::ranks() const {
  auto function = anchor->getParentOfType<func::FuncOp>();
  return function ? nn::ranksOf(function).value_or(1) : 1;
}

std::string Region::summedAxis() const {
  auto sum = llvm::find_if(ops, llvm::IsaPred<nn::AllReduceOp>);
  return sum == ops.end() ? "" : cast<nn::AllReduceOp>(*sum).getGroup().str();
}

} // namespace fusion
