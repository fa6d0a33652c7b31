#include "codegen/Views.h"

#include "ir/dialect/InPlace.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

/// A dim of at most one element repeats it where the value is broadcast.
static DimShape rowMajorStrides(const DimShape &shape) {
  DimShape strides(shape.size());
  Dim stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = nn::isOneOrNone(shape[i]) ? Dim(0) : stride;
    stride = stride * shape[i];
  }
  return strides;
}

bool isPacked(const View &view) {
  if (!view.base || !nn::isStored(view.base))
    return false;
  const DType type = dtype(view.base);
  return type == DType::I4 || type == DType::U4;
}

/// No index but 0 has an element.
static bool isOne(const Dim &dim) { return dim == Dim(1) || nn::isOneOrNone(dim); }

View View::contiguous(Value base, DimShape shape) {
  View view;
  view.base = base;
  view.strides = rowMajorStrides(shape);
  view.shape = std::move(shape);
  return view;
}

bool View::isContiguous() const {
  if (llvm::is_contained(shape, Dim(0)))
    return true;
  DimShape expected = rowMajorStrides(shape);
  for (size_t i = 0; i < shape.size(); ++i)
    if (!isOne(shape[i]) && !(strides[i] == expected[i]))
      return false;
  return true;
}

/// Each run of new dims must fill exactly one run of old dims that lie one after the other in memory.
static std::optional<View> reshaped(const View &view, const DimShape &shape) {
  View result{view.base, view.offset, shape, {}};
  if (view.isContiguous()) {
    result.strides = rowMajorStrides(shape);
    return result;
  }
  struct Run {
    Dim size, stride; ///< of the whole run; of its last dim
  };
  llvm::SmallVector<Run> runs;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (isOne(view.shape[i]))
      continue;
    if (!runs.empty() && runs.back().stride == view.shape[i] * view.strides[i])
      runs.back() = {runs.back().size * view.shape[i], view.strides[i]};
    else
      runs.push_back({view.shape[i], view.strides[i]});
  }
  result.strides.assign(shape.size(), Dim(0));
  size_t next = shape.size();
  while (!runs.empty()) {
    Run run = runs.pop_back_val();
    Dim filled = 1;
    while (!(filled == run.size)) {
      if (next == 0)
        return std::nullopt;
      --next;
      result.strides[next] = run.stride * filled;
      filled = filled * shape[next];
    }
  }
  while (next > 0)
    if (!isOne(shape[--next]))
      return std::nullopt;
  return result;
}

static View expanded(const View &view, const DimShape &shape) {
  View result{view.base, view.offset, shape, DimShape(shape.size(), Dim(0))};
  size_t added = shape.size() - view.shape.size();
  for (size_t i = 0; i < view.shape.size(); ++i)
    if (!isOne(view.shape[i]) || isOne(shape[added + i]))
      result.strides[added + i] = view.strides[i];
  return result;
}

static View sliced(const View &view, nn::SliceOp slice) {
  View result = view;
  DimShape starts = nn::dimsFromAttr(slice.getStarts());
  result.shape = nn::dimsFromAttr(slice.getSizes());
  for (size_t i = 0; i < starts.size(); ++i) {
    result.offset = result.offset + starts[i] * view.strides[i];
    if (nn::isOneOrNone(result.shape[i]))
      result.strides[i] = 0;
    else
      result.strides[i] = view.strides[i] * Dim(slice.getSteps()[i]);
  }
  return result;
}

static View transposed(const View &view, ArrayRef<int64_t> perm) {
  View result{view.base, view.offset, {}, {}};
  for (int64_t from : perm) {
    result.shape.push_back(view.shape[from]);
    result.strides.push_back(view.strides[from]);
  }
  return result;
}

std::optional<View> viewThrough(Operation *op, const View &operand, const nn::SymbolicShapes &shapes) {
  if (llvm::isa<nn::ReshapeOp>(op))
    return reshaped(operand, shapes[op->getResult(0)]);
  if (llvm::isa<nn::ExpandOp>(op))
    return expanded(operand, shapes[op->getResult(0)]);
  if (auto slice = llvm::dyn_cast<nn::SliceOp>(op))
    return sliced(operand, slice);
  if (auto transpose = llvm::dyn_cast<nn::TransposeOp>(op))
    return transposed(operand, transpose.getPerm());
  return std::nullopt;
}

std::optional<View> viewBefore(Operation *op, const View &result, const nn::SymbolicShapes &shapes) {
  if (llvm::isa<nn::ReshapeOp>(op))
    return reshaped(result, shapes[op->getOperand(0)]);
  if (auto transpose = llvm::dyn_cast<nn::TransposeOp>(op)) {
    ArrayRef<int64_t> perm = transpose.getPerm();
    View operand = result;
    for (size_t to = 0; to < perm.size(); ++to) {
      operand.shape[static_cast<size_t>(perm[to])] = result.shape[to];
      operand.strides[static_cast<size_t>(perm[to])] = result.strides[to];
    }
    return operand;
  }
  return std::nullopt;
}

Views Views::compute(func::FuncOp function, const nn::SymbolicShapes &shapes,
                     llvm::ArrayRef<View> arguments) {
  Views analysis;
  analysis.inPlace = nn::valuesInPlace(function);
  auto inStorage = [&](BlockArgument argument, const DimShape &shape) {
    View view = View::contiguous(argument, shape);
    if (auto storage = nn::storageOf(function, argument.getArgNumber()))
      view.strides = rowMajorStrides(*storage);
    return view;
  };
  for (BlockArgument argument : function.getArguments())
    if (const unsigned at = argument.getArgNumber(); at < arguments.size() && arguments[at].base)
      analysis.views[argument] = arguments[at];
    else
      analysis.views[argument] = inStorage(argument, shapes[argument]);
  for (Operation &op : function.getBody().front()) {
    if (op.getNumOperands() == 1 && op.getNumResults() == 1 && nn::isGraphOp(&op))
      if (std::optional<View> view = viewThrough(&op, analysis[op.getOperand(0)], shapes)) {
        analysis.views[op.getResult(0)] = std::move(*view);
        continue;
      }
    for (Value result : op.getResults()) {
      auto cache = analysis.inPlace.find(result);
      if (cache == analysis.inPlace.end())
        analysis.views[result] = View::contiguous(result, shapes[result]);
      else if (product(shapes[result]) == product(*nn::storageOf(function, cache->second.getArgNumber())))
        // fills the buffer, perhaps in another shape
        analysis.views[result] = View::contiguous(cache->second, shapes[result]);
      else
        analysis.views[result] = inStorage(cache->second, shapes[result]);
    }
  }
  return analysis;
}

const View &Views::operator[](Value value) const {
  auto found = views.find(value);
  assert(found != views.end() && "not a value of the analysed function");
  return found->second;
}

bool Views::isView(Operation *op) const {
  return op->getNumResults() == 1 && (*this)[op->getResult(0)].base != op->getResult(0) &&
         !isInPlace(op->getResult(0));
}

} // namespace fusion
