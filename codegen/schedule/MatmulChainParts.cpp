#include "codegen/schedule/MatmulChainParts.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace fusion::matmul {

namespace {
bool isIn(const Region &region, Operation *op) { return llvm::is_contained(region.ops, op); }

class Splitter {
public:
  Splitter(const Region &region, const KernelContext &context) : region(region), context(context) {}

  std::variant<ChainParts, std::string> run() {
    for (Region *part : {&parts.norm, &parts.products, &parts.heads}) {
      part->inputs = region.inputs;
      part->anchor = region.anchor;
      part->pattern = region.pattern;
    }
    nn::MatmulOp first;
    for (Operation *op : region.ops)
      if (auto matmul = dyn_cast<nn::MatmulOp>(op)) {
        first = first ? first : matmul;
        if (matmul.getA() != first.getA())
          return std::string("matmuls of different first operands");
      }
    if (!first)
      return std::string("no nn.matmul");
    takeNorm(first);
    assign();
    if (parts.norm.ops.empty() && parts.heads.ops.empty())
      return std::string("neither a norm before the matmuls nor heads after them");
    if (!parts.heads.ops.empty() && llvm::none_of(parts.heads.ops, llvm::IsaPred<nn::RopeOp>))
      return std::string("ops after the matmuls that are no scalar ops, and no rotations of heads");
    if (auto reason = connect())
      return *reason;
    return std::move(parts);
  }

private:
  void takeNorm(nn::MatmulOp matmul) {
    parts.norm.ops = prologueOps(region, Product(matmul.getY()));
    if (!parts.norm.ops.empty())
      parts.rows = matmul.getA();
  }

  /// Scalar ops of as many elements as a matmul has are its epilogue; what reads a result otherwise is of
  /// heads.
  bool isEpilogue(Operation *op) const {
    if (!op->hasTrait<nn::Pointwise>() || op->getNumResults() != 1)
      return false;
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      Operation *made = operand.getDefiningOp();
      const bool isResult = made && isIn(parts.products, made);
      return isResult ? context.shape(operand) == context.shape(op->getResult(0))
                      : !made || !fromMatmul.contains(made);
    });
  }

  void assign() {
    for (Operation *op : region.ops) {
      if (isIn(parts.norm, op))
        continue;
      const bool reads = llvm::any_of(op->getOperands(), [&](Value operand) {
        return operand.getDefiningOp() && fromMatmul.contains(operand.getDefiningOp());
      });
      if (isa<nn::MatmulOp>(op) || (reads && isEpilogue(op)))
        parts.products.ops.push_back(op);
      else if (reads)
        parts.heads.ops.push_back(op);
      if (isa<nn::MatmulOp>(op) || reads)
        fromMatmul.insert(op);
    }
    takeOthers(parts.products);
    takeOthers(parts.heads);
  }

  /// Constants, views of inputs and the like, in each part that reads them.
  void takeOthers(Region &part) const {
    llvm::DenseSet<Operation *> needed(part.ops.begin(), part.ops.end());
    for (Operation *op : llvm::reverse(region.ops))
      if (needed.contains(op))
        for (Value operand : op->getOperands())
          if (Operation *made = operand.getDefiningOp();
              made && isIn(region, made) && !fromMatmul.contains(made) && !isIn(parts.norm, made))
            needed.insert(made);
    part.ops.clear();
    llvm::copy_if(region.ops, std::back_inserter(part.ops),
                  [&](Operation *op) { return needed.contains(op); });
  }

  std::optional<std::string> connect() {
    if (parts.rows) {
      parts.products.inputs.push_back(parts.rows);
      parts.norm.outputs = {parts.rows};
    }
    for (Operation *op : parts.heads.ops)
      for (Value operand : op->getOperands()) {
        Operation *made = operand.getDefiningOp();
        if (made && isIn(parts.products, made) && fromMatmul.contains(made) &&
            !llvm::is_contained(parts.products.outputs, operand))
          parts.products.outputs.push_back(operand);
        if (made && isIn(parts.norm, made) && !isIn(parts.heads, made))
          return std::string("heads that read what is before the matmuls");
      }
    parts.heads.inputs.append(parts.products.outputs.begin(), parts.products.outputs.end());
    for (Value output : region.outputs) {
      Operation *made = output.getDefiningOp();
      if (isIn(parts.norm, made)) {
        if (output != parts.rows)
          parts.norm.outputs.push_back(output);
      } else if (isIn(parts.products, made)) {
        if (!parts.heads.ops.empty())
          return std::string("a result of the matmuls that leaves beside its heads");
        parts.products.outputs.push_back(output);
      } else {
        parts.heads.outputs.push_back(output);
      }
    }
    return std::nullopt;
  }

  const Region &region;
  const KernelContext &context;
  ChainParts parts;
  llvm::DenseSet<Operation *> fromMatmul;
};
} // namespace

std::variant<ChainParts, std::string> chainParts(const Region &region, const KernelContext &context) {
  return Splitter(region, context).run();
}

} // namespace fusion::matmul
