// Evaluation of ops whose inputs are known integers.
#include "ir/import/Known.h"
#include "ir/import/KnownArithmetic.h"

#include "ir/import/onnx.pb.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Larger results are left to the device.
constexpr int64_t mostElements = 1024;

using Unary = std::optional<Dim> (*)(const Dim &);
using Binary = std::optional<Dim> (*)(const Dim &, const Dim &);

std::optional<std::vector<int64_t>> broadcastShapes(ArrayRef<std::vector<int64_t>> shapes) {
  size_t rank = 0;
  for (const auto &shape : shapes)
    rank = std::max(rank, shape.size());
  std::vector<int64_t> result(rank, 1);
  for (const auto &shape : shapes)
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t &into = result[rank - shape.size() + i];
      if (into != 1 && shape[i] != 1 && into != shape[i])
        return std::nullopt;
      if (shape[i] != 1)
        into = shape[i];
    }
  int64_t elements = 1;
  for (int64_t dim : result) {
    if (dim < 0 || dim > mostElements)
      return std::nullopt;
    elements *= dim;
    if (elements > mostElements)
      return std::nullopt;
  }
  return result;
}

/// `x` broadcast to `shape`, to which it fits.
DimShape broadcastValues(const KnownInts &x, ArrayRef<int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 0);
  int64_t stride = 1;
  for (size_t i = x.shape.size(); i-- > 0;) {
    if (x.shape[i] != 1)
      strides[shape.size() - x.shape.size() + i] = stride;
    stride *= x.shape[i];
  }
  DimShape values;
  int64_t count = elementCount(shape);
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t rest = flat, from = 0;
    for (size_t i = shape.size(); i-- > 0; rest /= shape[i])
      from += rest % shape[i] * strides[i];
    values.push_back(x.values[from]);
  }
  return values;
}

/// As knownInput(), of numbers that compare as the type's do: the largest of ui64 are negative here.
std::optional<KnownInts> knownOperand(NodeImporter &n, unsigned index) {
  auto x = knownInput(n, index);
  return x && fits(x->values, n.inputType(index)) ? x : std::nullopt;
}

/// Makes result 0 known, unless its type does not hold it.
bool setResult(NodeImporter &n, const KnownInts &result, Type type) {
  if (!fits(result.values, type))
    return false;
  n.resultKnown(0, result.values, result.shape, type);
  return true;
}

bool evaluateUnary(NodeImporter &n, Unary apply) {
  auto x = knownOperand(n, 0);
  if (!x)
    return false;
  for (Dim &value : x->values) {
    auto result = apply(value);
    if (!result)
      return false;
    value = *result;
  }
  return setResult(n, *x, n.inputType(0));
}

/// Also for the ops that take any number of inputs.
bool evaluateBinary(NodeImporter &n, Binary apply, bool toBool) {
  auto result = knownOperand(n, 0);
  if (!result)
    return false;
  for (unsigned i = 1; i < n.inputCount(); ++i) {
    auto next = knownOperand(n, i);
    if (!next)
      return false;
    auto shape = broadcastShapes({result->shape, next->shape});
    if (!shape)
      return false;
    DimShape left = broadcastValues(*result, *shape), right = broadcastValues(*next, *shape);
    for (size_t e = 0; e < left.size(); ++e) {
      auto value = apply(left[e], right[e]);
      if (!value)
        return false;
      left[e] = *value;
    }
    *result = {left, *shape};
  }
  return setResult(n, *result, toBool ? n.builder().getI1Type() : n.inputType(0));
}

bool evaluateWhere(NodeImporter &n) {
  auto condition = knownInput(n, 0), x = knownInput(n, 1), y = knownInput(n, 2);
  if (!condition || !x || !y)
    return false;
  auto shape = broadcastShapes({condition->shape, x->shape, y->shape});
  if (!shape)
    return false;
  DimShape choice = broadcastValues(*condition, *shape), left = broadcastValues(*x, *shape),
           right = broadcastValues(*y, *shape);
  for (size_t i = 0; i < choice.size(); ++i) {
    if (!choice[i].isStatic())
      return false;
    if (choice[i] == Dim(0))
      left[i] = right[i];
  }
  n.resultKnown(0, left, *shape, n.inputType(1));
  return true;
}

bool evaluateCast(NodeImporter &n) {
  Type to = n.opType() == "Cast" ? n.typeAttribute("to", {}) : n.inputType(1);
  auto x = knownOperand(n, 0);
  if (!x || !to || !to.isInteger() || to.getIntOrFloatBitWidth() < 32) {
    if (!x || !to || !to.isInteger(1))
      return false;
    for (Dim &value : x->values) {
      auto zero = equal(value, Dim(0));
      if (!zero)
        return false;
      value = Dim(1) - *zero;
    }
  }
  return setResult(n, *x, to);
}

bool evaluateConcat(NodeImporter &n) {
  std::vector<KnownInts> parts;
  for (unsigned i = 0; i < n.inputCount(); ++i) {
    auto part = knownInput(n, i);
    if (!part || part->shape.empty() || part->shape.size() != (i == 0 ? *part : parts[0]).shape.size())
      return false;
    parts.push_back(std::move(*part));
  }
  if (parts.empty())
    return false;
  KnownInts result;
  result.shape = parts[0].shape;
  const int64_t axis = n.axis(n.intAttribute("axis", 0), static_cast<int64_t>(result.shape.size()));
  if (n.failed())
    return true;
  int64_t &along = result.shape[axis];
  along = 0;
  for (const KnownInts &part : parts) {
    along += part.shape[axis];
    for (size_t i = 0; i < part.shape.size(); ++i)
      if (static_cast<int64_t>(i) != axis && part.shape[i] != result.shape[i])
        return false; // an error of the op's own
  }
  const int64_t outer = elementCount(ArrayRef(result.shape).take_front(axis));
  for (int64_t o = 0; o < outer; ++o)
    for (const KnownInts &part : parts) {
      const auto row = static_cast<int64_t>(part.values.size()) / outer;
      result.values.insert(result.values.end(), part.values.begin() + o * row,
                           part.values.begin() + (o + 1) * row);
    }
  if (static_cast<int64_t>(result.values.size()) > mostElements)
    return false;
  n.resultKnown(0, result.values, result.shape, n.inputType(0));
  return true;
}

/// And and Or of which one operand alone says what the result is, `decisive` everywhere.
bool evaluateDecided(NodeImporter &n, int64_t decisive) {
  for (unsigned i = 0; i < 2; ++i) {
    auto known = knownInput(n, i);
    auto other = staticShape(n.shape(1 - i));
    if (!known || !other || known->values.empty() ||
        !llvm::all_of(known->values, [&](const Dim &value) { return value == Dim(decisive); }))
      continue;
    if (auto shape = broadcastShapes({known->shape, *other})) {
      n.resultKnown(0, DimShape(elementCount(*shape), Dim(decisive)), *shape, n.inputType(0));
      return true;
    }
  }
  return false;
}

bool evaluateGather(NodeImporter &n) {
  auto x = knownInput(n, 0), indices = knownInput(n, 1);
  auto at = staticShape(indices ? indices->values : DimShape{Dim::symbol("unknown")});
  if (!x || !at || x->shape.empty())
    return false;
  int64_t axis = n.axis(n.intAttribute("axis", 0), static_cast<int64_t>(x->shape.size()));
  if (n.failed())
    return true;
  int64_t outer = 1, inner = 1, size = x->shape[axis];
  for (size_t i = 0; i < x->shape.size(); ++i)
    (static_cast<int64_t>(i) < axis ? outer : inner) *= static_cast<int64_t>(i) == axis ? 1 : x->shape[i];
  if (outer * static_cast<int64_t>(at->size()) * inner > mostElements)
    return false;
  KnownInts result;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t index : *at) {
      int64_t from = index < 0 ? index + size : index;
      if (from < 0 || from >= size) {
        n.fail("index " + Twine(index) + " is out of range for size " + Twine(size));
        return true;
      }
      auto start = x->values.begin() + (o * size + from) * inner;
      result.values.insert(result.values.end(), start, start + inner);
    }
  result.shape.assign(x->shape.begin(), x->shape.begin() + axis);
  result.shape.insert(result.shape.end(), indices->shape.begin(), indices->shape.end());
  result.shape.insert(result.shape.end(), x->shape.begin() + axis + 1, x->shape.end());
  n.resultKnown(0, result.values, result.shape, n.inputType(0));
  return true;
}

bool evaluateExpand(NodeImporter &n) {
  auto x = knownInput(n, 0), target = knownInput(n, 1);
  auto shape = staticShape(target ? target->values : DimShape{Dim::symbol("unknown")});
  if (!x || !shape)
    return false;
  auto result = broadcastShapes({x->shape, *shape});
  if (!result)
    return false;
  n.resultKnown(0, broadcastValues(*x, *result), *result, n.inputType(0));
  return true;
}

/// Of known numbers: arithmetic of dims wraps.
bool differenceWraps(const Dim &a, const Dim &b) {
  int64_t difference = 0;
  return a.isStatic() && b.isStatic() && __builtin_sub_overflow(a.value(), b.value(), &difference);
}

bool evaluateRange(NodeImporter &n) {
  auto start = knownOperand(n, 0), limit = knownOperand(n, 1), step = knownOperand(n, 2);
  if (!start || !limit || !step || start->values.size() != 1 || limit->values.size() != 1 ||
      step->values.size() != 1)
    return false;
  Dim span = limit->values[0] - start->values[0];
  if (differenceWraps(limit->values[0], start->values[0]) || !span.isStatic() ||
      !step->values[0].isStatic() || step->values[0] == Dim(0))
    return false;
  int64_t by = step->values[0].value();
  __int128 exact = (static_cast<__int128>(span.value()) + by + (by > 0 ? -1 : 1)) / by;
  if (exact > mostElements)
    return false;
  int64_t count = exact > 0 ? static_cast<int64_t>(exact) : 0;
  DimShape values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(start->values[0] + Dim(i * by));
  return setResult(n, {values, {count}}, n.inputType(0));
}

/// Reductions of a vector to its only element.
bool evaluateReduction(NodeImporter &n, Binary apply) {
  auto x = knownOperand(n, 0);
  if (!x || x->shape.size() != 1 || x->values.empty())
    return false;
  bool axesGiven = n.has(1) || n.hasAttribute("axes");
  if (!axesGiven && n.intAttribute("noop_with_empty_axes", 0) != 0)
    return false;
  if (n.has(1) && (!n.known(1) || n.known(1)->size() != 1))
    return false;
  Dim total = x->values[0];
  for (size_t i = 1; i < x->values.size(); ++i) {
    auto next = apply(total, x->values[i]);
    if (!next)
      return false;
    total = *next;
  }
  bool keep = n.intAttribute("keepdims", 1) != 0;
  return setResult(n, {{total}, keep ? std::vector<int64_t>{1} : std::vector<int64_t>{}}, n.inputType(0));
}

std::optional<Dim> addDims(const Dim &a, const Dim &b) { return a + b; }
std::optional<Dim> subDims(const Dim &a, const Dim &b) { return a - b; }
std::optional<Dim> mulDims(const Dim &a, const Dim &b) {
  return a.termCount() * b.termCount() > 1024 ? std::nullopt : std::optional(a * b);
}
std::optional<Dim> maxDims(const Dim &a, const Dim &b) { return Dim::max(a, b); }
std::optional<Dim> minDims(const Dim &a, const Dim &b) { return Dim::min(a, b); }

bool evaluateTranspose(NodeImporter &n) {
  auto x = knownInput(n, 0);
  if (!x)
    return false;
  const auto rank = static_cast<int64_t>(x->shape.size());
  std::vector<int64_t> perm = n.intsAttribute("perm");
  if (perm.empty())
    for (int64_t i = rank; i-- > 0;)
      perm.push_back(i);
  if (!std::is_permutation(perm.begin(), perm.end(), llvm::seq<int64_t>(0, rank).begin()) ||
      static_cast<int64_t>(perm.size()) != rank)
    return false;
  std::vector<int64_t> strides(rank, 1), shape, steps;
  for (int64_t i = rank - 1; i > 0; --i)
    strides[i - 1] = strides[i] * x->shape[i];
  for (int64_t axis : perm) {
    shape.push_back(x->shape[axis]);
    steps.push_back(strides[axis]);
  }
  DimShape values;
  for (size_t index = 0; index < x->values.size(); ++index) {
    int64_t from = 0;
    for (auto [rest, i] = std::pair(static_cast<int64_t>(index), rank - 1); i >= 0; rest /= shape[i--])
      from += rest % shape[i] * steps[i];
    values.push_back(x->values[from]);
  }
  n.resultKnown(0, values, shape, n.inputType(0));
  return true;
}

} // namespace

void registerKnown(HandlerTable &table) {
  auto unary = [&](StringRef name, Unary apply) {
    table.addEvaluator(name, [apply](NodeImporter &n) { return evaluateUnary(n, apply); });
  };
  auto binary = [&](StringRef name, Binary apply, bool toBool = false) {
    table.addEvaluator(name, [=](NodeImporter &n) { return evaluateBinary(n, apply, toBool); });
  };
  unary("Neg", [](const Dim &a) { return std::optional(Dim(0) - a); });
  unary("Abs", absolute);
  unary("Not", [](const Dim &a) { return a.isStatic() ? std::optional(Dim(1) - a) : std::nullopt; });
  binary("Add", addDims);
  binary("Sub", subDims);
  binary("Mul", mulDims);
  binary("Sum", addDims);
  binary("Div", divide);
  binary("Pow", power);
  binary("Max", maxDims);
  binary("Min", minDims);
  table.addEvaluator("Mod", [](NodeImporter &n) {
    return n.intAttribute("fmod", 0) == 0 && evaluateBinary(n, modulo, false);
  });
  binary("Equal", equal, true);
  binary("Less", less, true);
  binary("Greater", [](const Dim &a, const Dim &b) { return less(b, a); }, true);
  binary("LessOrEqual", [](const Dim &a, const Dim &b) { return negate(less(b, a)); }, true);
  binary("GreaterOrEqual", [](const Dim &a, const Dim &b) { return negate(less(a, b)); }, true);
  const auto logicAnd = [](const Dim &a, const Dim &b) { return logic(a, b, '&'); };
  const auto logicOr = [](const Dim &a, const Dim &b) { return logic(a, b, '|'); };
  const auto logicXor = [](const Dim &a, const Dim &b) { return logic(a, b, '^'); };
  binary("BitwiseAnd", logicAnd);
  binary("BitwiseOr", logicOr);
  binary("BitwiseXor", logicXor);
  binary("Xor", logicXor);
  table.addEvaluator(
      "And", [=](NodeImporter &n) { return evaluateDecided(n, 0) || evaluateBinary(n, logicAnd, false); });
  table.addEvaluator(
      "Or", [=](NodeImporter &n) { return evaluateDecided(n, 1) || evaluateBinary(n, logicOr, false); });
  table.addEvaluator("Where", evaluateWhere);
  table.addEvaluator("Cast", evaluateCast);
  table.addEvaluator("CastLike", evaluateCast);
  table.addEvaluator("Concat", evaluateConcat);
  table.addEvaluator("Gather", evaluateGather);
  table.addEvaluator("Transpose", evaluateTranspose);
  table.addEvaluator("Expand", evaluateExpand);
  table.addEvaluator("Range", evaluateRange);
  auto reduction = [&](StringRef name, Binary apply) {
    table.addEvaluator(name, [apply](NodeImporter &n) { return evaluateReduction(n, apply); });
  };
  reduction("ReduceSum", addDims);
  reduction("ReduceProd", mulDims);
  reduction("ReduceMax", maxDims);
  reduction("ReduceMin", minDims);
}

} // namespace fusion::onnx
