#include "passes/raise/StackExperts.h"

#include "passes/normalise/Patterns.h"

using namespace mlir;

namespace fusion::raise {

namespace {

NamedAttribute number(Raiser &raiser, StringRef name, int64_t value) {
  return raiser.rewriter.getNamedAttr(name, raiser.rewriter.getI64IntegerAttr(value));
}

/// How the scales of one weight are reshaped, and what nn.dequantize of a stack of them says.
struct StackedScales {
  DimShape shape; ///< of one weight's
  int64_t axis = 0, block = 0;
};

StackedScales stackedScales(nn::DequantizeOp op, Raiser &raiser) {
  DimShape x = raiser.shapes.of(op.getX()), scale = raiser.shapes.of(op.getScale());
  auto axis = static_cast<int64_t>(op.getAxis());
  axis += axis < 0 ? static_cast<int64_t>(x.size()) : 0;
  if (product(scale) == Dim(1))
    return {{}, 0, 0};
  if (op.getBlockSize() > 0)
    return {scale, axis + 1, static_cast<int64_t>(op.getBlockSize())};
  // One for each index of `axis`: one block of the other one's length.
  const int64_t other = 1 - axis;
  DimShape shape(2, Dim(1));
  shape[static_cast<size_t>(axis)] = x[static_cast<size_t>(axis)];
  return {shape, other + 1, x[static_cast<size_t>(other)].value()};
}

/// Of weights of two known dims, all quantised alike; null else.
Value stackQuantised(ArrayRef<Value> parts, Raiser &raiser) {
  auto first = parts.front().getDefiningOp<nn::DequantizeOp>();
  if (!first || tensorType(first.getX()).getRank() != 2 || !tensorType(first.getX()).hasStaticShape())
    return {};
  SmallVector<SmallVector<Value>> operands(first->getNumOperands());
  const StackedScales scales = stackedScales(first, raiser);
  for (Value part : parts) {
    auto op = part.getDefiningOp<nn::DequantizeOp>();
    if (!op || op->getAttrs() != first->getAttrs() || op->getOperandTypes() != first->getOperandTypes())
      return {};
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      operands[i].push_back(i == 0 ? operand
                                   : nn::buildReshape(raiser.rewriter, op.getLoc(), operand, scales.shape));
  }
  SmallVector<Value> stacks;
  for (ArrayRef<Value> each : operands)
    stacks.push_back(stackParameters(each, raiser));
  return nn::build<nn::DequantizeOp>(
      raiser.rewriter, first.getLoc(), stacks,
      {number(raiser, "axis", scales.axis), number(raiser, "block_size", scales.block)}, elementType(first));
}

} // namespace

Value stackParameters(ArrayRef<Value> parts, Raiser &raiser) {
  auto &rewriter = raiser.rewriter;
  Location location = parts.front().getLoc();
  DimShape one = raiser.shapes.of(parts.front()), all = one;
  one.insert(one.begin(), Dim(1));
  all.insert(all.begin(), Dim(static_cast<int64_t>(parts.size())));
  if (llvm::all_equal(parts))
    return nn::build<nn::ExpandOp>(
        rewriter, location, nn::buildReshape(rewriter, location, parts.front(), one),
        rewriter.getNamedAttr("shape", nn::dimsToAttr(rewriter.getContext(), all)));
  if (Value quantised = stackQuantised(parts, raiser))
    return quantised;
  SmallVector<Value> reshaped;
  for (Value part : parts)
    reshaped.push_back(nn::buildReshape(rewriter, location, part, one));
  return nn::build<nn::ConcatOp>(rewriter, location, reshaped, number(raiser, "axis", 0));
}

std::nullopt_t ExpertBodies::fail(std::string reason) {
  if (problem.empty())
    problem = std::move(reason);
  return std::nullopt;
}

Value ExpertBodies::routed(ArrayRef<Value> values) {
  auto lifted = lift(values);
  if (lifted && !lifted->isRouted)
    fail("the experts compute nothing of their own");
  return lifted && lifted->isRouted ? lifted->value : Value();
}

/// A value that the stores of the graph alone determine: by one op at most, as weights are cast or decoded.
static bool isParameterLike(Value value) {
  if (auto decoded = value.getDefiningOp<nn::DequantizeOp>())
    value = decoded.getX();
  if (auto slice = value.getDefiningOp<nn::SliceOp>())
    value = slice.getX();
  return isParameter(value);
}

std::optional<ExpertBodies::Lifted> ExpertBodies::lift(ArrayRef<Value> values) {
  if (llvm::all_equal(values))
    return Lifted{values.front(), {}, false};
  if (auto found = known.find(values.front()); found != known.end())
    return found->second;
  auto sameType = [&](Value value) { return value.getType() == values.front().getType(); };
  if (!llvm::all_of(values, sameType))
    return fail("the experts' values have different shapes or types");
  Lifted lifted;
  if (llvm::all_of(values, isParameterLike)) {
    lifted.parameters.assign(values.begin(), values.end());
  } else {
    SmallVector<Operation *> ops;
    for (Value value : values) {
      Operation *op = value.getDefiningOp();
      if (!op)
        return fail("one expert reads an argument where others compute");
      if (!ops.empty() &&
          (op->getName() != ops.front()->getName() || op->getAttrs() != ops.front()->getAttrs() ||
           op->getNumOperands() != ops.front()->getNumOperands()))
        return fail("one expert has " + op->getName().getStringRef().str() + " where another has " +
                    ops.front()->getName().getStringRef().str() + " or other attributes");
      ops.push_back(op);
    }
    SmallVector<Lifted> operands;
    for (unsigned i = 0; i < ops.front()->getNumOperands(); ++i) {
      SmallVector<Value> each;
      for (Operation *op : ops)
        each.push_back(op->getOperand(i));
      auto operand = lift(each);
      if (!operand)
        return std::nullopt;
      operands.push_back(std::move(*operand));
    }
    lifted.value = apply(ops, operands);
    lifted.isRouted = true;
    if (!lifted.value)
      return std::nullopt;
  }
  return known[values.front()] = std::move(lifted);
}

Value ExpertBodies::apply(ArrayRef<Operation *> ops, ArrayRef<Lifted> operands) {
  Operation *first = ops.front();
  if (auto matmul = llvm::dyn_cast<nn::MatmulOp>(first))
    return multiply(matmul, operands[0], operands[1]);
  if (auto slice = llvm::dyn_cast<nn::SliceOp>(first))
    return sliced(slice, operands[0]);
  if (first->hasTrait<nn::Pointwise>())
    return elementwise(first, operands);
  fail("an expert holds " + first->getName().getStringRef().str());
  return {};
}

Value ExpertBodies::multiply(nn::MatmulOp first, const Lifted &x, const Lifted &w) {
  const size_t rows = raiser.shapes.of(index).size() - 1;
  Value left = x.value;
  if (w.parameters.empty() || tensorType(w.parameters.front()).getRank() != 2 || !left ||
      first.getTransposeA()) {
    fail("a product in an expert is not that of its rows and a weight of its own");
    return {};
  }
  if (!x.isRouted) {
    DimShape shape = raiser.shapes.of(left);
    if (shape.size() != rows + 1) {
      fail("the experts' rows are not those that are routed");
      return {};
    }
    shape.insert(shape.end() - 1, Dim(1));
    left = nn::buildReshape(raiser.rewriter, first.getLoc(), left, shape);
  }
  Value stack = stackParameters(w.parameters, raiser);
  return nn::build<nn::ExpertMatmulOp>(raiser.rewriter, first.getLoc(), {left, stack, index},
                                       raiser.rewriter.getNamedAttr("transpose_w", first.getTransposeBAttr()),
                                       elementType(first));
}

Value ExpertBodies::elementwise(Operation *first, ArrayRef<Lifted> operands) {
  auto &rewriter = raiser.rewriter;
  SmallVector<Value> values;
  for (const Lifted &operand : operands) {
    if (operand.isRouted) {
      values.push_back(operand.value);
      continue;
    }
    DimShape shape = raiser.shapes.of(operand.value ? operand.value : operand.parameters.front());
    if (operand.value) {
      if (shape.size() > 1)
        shape.insert(shape.end() - 1, Dim(1));
      values.push_back(nn::buildReshape(rewriter, first->getLoc(), operand.value, shape));
      continue;
    }
    if (shape.size() > 1) {
      fail("a parameter of rank " + std::to_string(shape.size()) + " meets an expert's rows");
      return {};
    }
    Value own = nn::build<nn::GatherOp>(rewriter, first->getLoc(),
                                        {stackParameters(operand.parameters, raiser), index},
                                        number(raiser, "axis", 0));
    if (shape.empty()) {
      DimShape column = raiser.shapes.of(index);
      column.push_back(Dim(1));
      own = nn::buildReshape(rewriter, first->getLoc(), own, column);
    }
    values.push_back(own);
  }
  return normalise::rebuild(rewriter, first, values);
}

Value ExpertBodies::sliced(nn::SliceOp first, const Lifted &x) {
  DimShape shape = raiser.shapes.of(first.getX()), starts = nn::dimsFromAttr(first.getStarts()),
           sizes = nn::dimsFromAttr(first.getSizes());
  bool lastOnly = x.isRouted && shape.size() == raiser.shapes.of(index).size();
  for (size_t i = 0; lastOnly && i + 1 < shape.size(); ++i)
    lastOnly = starts[i] == Dim(0) && sizes[i] == shape[i] && first.getSteps()[i] == 1;
  if (!lastOnly) {
    fail("an expert takes a part of its rows");
    return {};
  }
  DimShape routed = raiser.shapes.of(index), begin(routed.size(), Dim(0));
  begin.push_back(starts.back());
  routed.push_back(sizes.back());
  SmallVector<int64_t> steps(routed.size(), 1);
  steps.back() = first.getSteps().back();
  auto &rewriter = raiser.rewriter;
  return nn::build<nn::SliceOp>(
      rewriter, first.getLoc(), x.value,
      {rewriter.getNamedAttr("starts", nn::dimsToAttr(rewriter.getContext(), begin)),
       rewriter.getNamedAttr("sizes", nn::dimsToAttr(rewriter.getContext(), routed)),
       rewriter.getNamedAttr("steps", rewriter.getDenseI64ArrayAttr(steps))});
}

} // namespace fusion::raise
