// Several products of one A in one kernel.
#include "codegen/schedule/MatmulProblem.h"

#include "llvm/ADT/DenseSet.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

/// Which products `value` is computed from, as a mask.
static unsigned productsBehind(const Region &region, const Problem &problem, Value value) {
  unsigned mask = 0;
  DenseSet<Operation *> seen;
  SmallVector<Value> pending{value};
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || !llvm::is_contained(region.ops, op) || !seen.insert(op).second)
      continue;
    auto product = llvm::find_if(problem.products,
                                 [&](const Product &product) { return nn::MatmulOp(product.op) == op; });
    if (product == problem.products.end())
      pending.append(op->operand_begin(), op->operand_end());
    else
      mask |= 1u << (product - problem.products.begin());
  }
  return mask;
}

/// Two values that are the same elements of one input, or the same op on them.
static bool isSameOperand(const Region &region, const KernelContext &context, Value left, Value right) {
  if (left == right)
    return true;
  auto a = inputView(region, context, left), b = inputView(region, context, right);
  return a && b && a->first == b->first && a->second.shape == b->second.shape &&
         a->second.strides == b->second.strides && a->second.offset == b->second.offset;
}

/// One text decodes the elements of either; where the scales lie may differ.
static bool isDecodedAlike(const Operand &left, const Operand &right) {
  auto alike = [](const std::optional<Entry> &a, const std::optional<Entry> &b) {
    if (!a || !b)
      return a.has_value() == b.has_value();
    return a->literal.has_value() == b->literal.has_value() && a->type == b->type && a->packed == b->packed && a->rowBlock == b->rowBlock &&
           a->columnBlock == b->columnBlock;
  };
  if (!left.decode || !right.decode)
    return left.decode.has_value() == right.decode.has_value();
  return left.decode->type == right.decode->type && alike(left.decode->scale, right.decode->scale) &&
         alike(left.decode->zero, right.decode->zero);
}

static std::optional<std::string> whyNotOneKernel(const Region &region, const KernelContext &context,
                                                  const Problem &problem) {
  if (problem.products.size() > 8)
    return std::string("more than eight matrix products");
  if (!problem.batch.empty())
    return std::string("several products, in batches");
  nn::MatmulOp first = problem.op;
  for (const Product &product : llvm::drop_begin(problem.products)) {
    nn::MatmulOp op = product.op;
    if (!isSameOperand(region, context, first.getA(), op.getA()) || op.getTransposeA() != first.getTransposeA())
      return std::string("products of different first operands");
    if (product.b.type != problem.b.type || product.b.packed != problem.b.packed)
      return std::string("second operands of different element types");
    if ((product.b.rowStride == Dim(1)) != (problem.b.rowStride == Dim(1)) ||
        (product.b.columnStride == Dim(1)) != (problem.b.columnStride == Dim(1)))
      return std::string("second operands of different layouts");
    if (!isDecodedAlike(product.b, problem.b))
      return std::string("second operands quantised in different ways");
  }
  return std::nullopt;
}

std::optional<std::string> arrangeProducts(const Region &region, const KernelContext &context,
                                           Problem &problem) {
  const bool several = problem.products.size() > 1;
  if (several)
    if (auto reason = whyNotOneKernel(region, context, problem))
      return reason;
  SmallVector<unsigned> masks;
  for (Value output : region.outputs) {
    const bool ahead = llvm::is_contained(problem.ahead, output.getDefiningOp());
    if (ahead)
      problem.outputsAhead.push_back(static_cast<unsigned>(masks.size()));
    masks.push_back(ahead ? 0u : several ? productsBehind(region, problem, output) : 1u);
    problem.together |= llvm::popcount(masks.back()) > 1;
  }
  if (problem.together && problem.products.size() > 2)
    return std::string("a result made from some of more than two products");
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    if (llvm::is_contained(problem.outputsAhead, index))
      continue;
    if (masks[index] == 0)
      return std::string("an output that no product reaches");
    for (auto [place, product] : llvm::enumerate(problem.products)) {
      if (!problem.together && !(masks[index] >> place & 1))
        continue;
      product.outputs.push_back(static_cast<unsigned>(index));
      const DimShape &shape = context.shape(nn::MatmulOp(product.op).getY());
      if (context.shape(output) != shape)
        return "an output of shape [" + shapeString(context.shape(output)) + "], the product has [" +
               shapeString(shape) + "]";
    }
  }
  if (problem.together) {
    const Product &first = problem.products[0], &second = problem.products[1];
    nn::MatmulOp left = first.op, right = second.op;
    if (context.shape(left.getY()) != context.shape(right.getY()))
      return std::string("products of different shapes in one result");
    if (first.b.rowStride != second.b.rowStride || first.b.columnStride != second.b.columnStride)
      return std::string("second operands of different strides in one result");
  }
  return std::nullopt;
}

std::string numbered(StringRef stem, size_t sum) {
  return stem.str() + (sum == 0 ? "" : std::to_string(sum));
}

std::string chosen(ArrayRef<std::string> texts) {
  std::string choice;
  for (size_t i = 0; i + 1 < texts.size(); ++i)
    choice += fmt::format("product == {} ? {} : ", i, texts[i]);
  return choice + texts.back();
}

Dim columnBlocks(const Problem &problem, int64_t tileN) {
  Dim blocks = problem.n.ceilDiv(tileN);
  if (problem.sideBySide())
    for (const Product &product : llvm::drop_begin(problem.products))
      blocks = blocks + product.n.ceilDiv(tileN);
  return blocks;
}

static bool sameInAll(const Problem &problem, llvm::function_ref<Dim(const Product &)> what) {
  return !problem.sideBySide() || llvm::all_of(problem.products, [&](const Product &product) {
    return what(product) == what(problem.products[0]);
  });
}
static Dim widthOf(const Product &product) { return product.n; }
static Dim rowStrideOf(const Product &product) { return product.b.rowStride; }
static Dim columnStrideOf(const Product &product) { return product.b.columnStride; }

void emitProductChoice(KernelWriter &writer, const Problem &problem, const std::string &place,
                       int64_t tileN) {
  writer.line("// Each product has its own range of blocks.");
  writer.line(fmt::format("const i64 place = {};", place));
  Dim before = 0;
  std::string product;
  SmallVector<std::string> firsts;
  for (auto [index, entry] : llvm::enumerate(problem.products)) {
    firsts.push_back(writer.size(before));
    before = before + entry.n.ceilDiv(tileN);
    product += index + 1 < problem.products.size()
                   ? fmt::format("place < {} ? {} : ", writer.size(before), index)
                   : std::to_string(index);
  }
  writer.line(fmt::format("const int product = {};", product));
  writer.line(fmt::format("const i64 part = place - ({});", chosen(firsts)));
  auto declare = [&](const char *name, Dim (*what)(const Product &)) {
    if (sameInAll(problem, what))
      return;
    SmallVector<std::string> texts;
    for (const Product &entry : problem.products)
      texts.push_back(writer.size(what(entry)));
    writer.line(fmt::format("const i64 {} = {};", name, chosen(texts)));
  };
  declare("width", widthOf);
  declare("strideK", rowStrideOf);
  declare("strideN", columnStrideOf);
}

std::string widthText(KernelWriter &writer, const Problem &problem) {
  return sameInAll(problem, widthOf) ? writer.size(problem.n) : "width";
}
std::string alongK(KernelWriter &writer, const Problem &problem, const std::string &index) {
  return sameInAll(problem, rowStrideOf) ? scaled(writer, index, problem.b.rowStride) : index + " * strideK";
}
std::string alongN(KernelWriter &writer, const Problem &problem, const std::string &index) {
  return sameInAll(problem, columnStrideOf) ? scaled(writer, index, problem.b.columnStride)
                                            : index + " * strideN";
}

void forStoredProducts(KernelWriter &writer, const Problem &problem, llvm::function_ref<void(size_t)> body) {
  if (!problem.sideBySide())
    return body(0);
  for (size_t first = 0; first < problem.products.size(); ++first) {
    writer.line(fmt::format("if (product == {}) {{", first));
    writer.comment(problem.products[first].op);
    body(first);
    writer.line("}");
  }
}

} // namespace fusion::matmul
