// Parts of tensors and tensors of parts.
#include "ir/import/Known.h"

#include <limits>
#include <set>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Ends at or beyond these mean "to the end", whatever the size: tf2onnx writes a billion, others the largest
/// number of a type.
constexpr int64_t farEnd = 1'000'000'000, farStart = -farEnd;

/// A start or end of Slice as a position in [low, high], where `size` is that of the dim.
Dim position(const Dim &value, const Dim &size, const Dim &low, const Dim &high) {
  if (value.isStatic() && value.value() >= farEnd)
    return high;
  if (value.isStatic() && value.value() <= farStart)
    return low;
  Dim at = value;
  if (!value.knownNonNegative()) {
    const bool isNegative = (Dim(-1) - value).knownNonNegative();
    at = value + (isNegative ? size : size * Dim::min(Dim(1), Dim::max(Dim(0), Dim(0) - value)));
  }
  return Dim::max(low, Dim::min(at, high));
}

/// Whether a size that the exporter wrote can stand for the one computed, which has clamps in it: the two are
/// the same where nothing is clamped, for large sizes. Exporters write names of inputs' dims for others, too.
bool trustworthy(const Dim &declared, const Dim &computed) {
  if (computed.isStatic() || declared == computed)
    return false;
  std::set<std::string> names = computed.symbols();
  if (!llvm::all_of(declared.symbols(), [&](const std::string &name) { return names.contains(name); }))
    return false;
  for (const int64_t least : {10'007, 100'003, 1'000'003}) {
    SymbolValues sizes;
    for (const auto &[i, name] : llvm::enumerate(names))
      sizes[name] = least + static_cast<int64_t>(i) * 1'009;
    const Result<int64_t> wrote = declared.evaluate(sizes), is = computed.evaluate(sizes);
    if (!wrote || !is || *wrote != *is)
      return false;
  }
  return true;
}

void slice(NodeImporter &n) {
  const bool byAttributes = n.opset() < 10;
  auto attribute = [&](StringRef name) {
    std::vector<int64_t> values = n.intsAttribute(name);
    return DimShape(values.begin(), values.end());
  };
  DimShape starts = byAttributes ? attribute("starts") : n.requireKnown(1, "starts");
  DimShape ends = byAttributes ? attribute("ends") : n.requireKnown(2, "ends");
  std::vector<int64_t> axes, steps;
  if (byAttributes && n.hasAttribute("axes"))
    axes = n.intsAttribute("axes");
  else if (n.has(3))
    axes = n.requireConstants(3, "axes");
  else
    for (size_t i = 0; i < starts.size(); ++i)
      axes.push_back(static_cast<int64_t>(i));
  steps = n.has(4) ? n.requireConstants(4, "steps") : std::vector<int64_t>(starts.size(), 1);
  if (n.failed())
    return;
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return n.fail("starts, ends, axes and steps have different lengths");
  DimShape from = n.shape(0), sizes = from, first(from.size(), Dim(0));
  std::vector<int64_t> strides(from.size(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t axis = n.axis(axes[i], n.rank(0)), step = steps[i];
    if (n.failed())
      return;
    if (step == 0 || step > farEnd || step < -farEnd)
      return n.fail("step " + Twine(step));
    const Dim &size = from[axis];
    Dim low = step > 0 ? Dim(0) : Dim(-1), high = step > 0 ? size : size - Dim(1);
    const Dim start = position(starts[i], size, Dim(0), high), end = position(ends[i], size, low, high);
    const Dim span = step > 0 ? end - start : start - end;
    // Clamping keeps the order of what is clamped.
    const bool ordered = step > 0 && !ends[i].isStatic() && starts[i].knownNonNegative() &&
                         (ends[i] - starts[i]).knownNonNegative();
    Dim count = (ordered ? span : Dim::max(span, Dim(0))).ceilDiv(Dim(std::abs(step)));
    sizes[axis] = count;
    first[axis] = start;
    strides[axis] = step;
    // `x[1:]` of a symbolic dim is max(0, dim - min(1, dim)); the exporter may know that the dim is not
    // empty.
    auto declared = n.declaredDim(0, static_cast<unsigned>(axis));
    if (declared && trustworthy(*declared, count) && std::abs(step) == 1) {
      sizes[axis] = *declared;
      if (starts[i].isStatic() && std::abs(starts[i].value()) < farEnd)
        first[axis] = starts[i].value() < 0 ? starts[i] + size : starts[i];
    }
  }
  if (auto x = knownInput(n, 0)) {
    auto numbers = staticShape(first), counts = staticShape(sizes);
    if (numbers && counts) {
      KnownInts part = sliceKnown(*x, *numbers, *counts, strides);
      return n.resultKnown(0, part.values, part.shape, n.inputType(0));
    }
  }
  bool whole = sizes == from && llvm::all_of(strides, [](int64_t step) { return step == 1; });
  if (whole)
    return n.forward(0, 0);
  n.result(0, n.build<nn::SliceOp>(
                  n.operand(0), {n.dims("starts", first), n.dims("sizes", sizes), n.ints("steps", strides)}));
}

void split(NodeImporter &n) {
  int64_t axis = n.axis(n.intAttribute("axis", 0), n.rank(0));
  if (n.failed())
    return;
  DimShape from = n.shape(0);
  Dim size = from[axis];
  DimShape parts;
  if (n.has(1)) {
    parts = n.requireKnown(1, "split");
  } else if (n.hasAttribute("split")) {
    for (int64_t part : n.intsAttribute("split"))
      parts.push_back(part);
  } else {
    int64_t count = n.intAttribute("num_outputs", n.outputCount());
    if (count <= 0)
      return n.fail("no outputs");
    if (count != n.outputCount())
      return n.fail(Twine(count) + " parts for " + Twine(n.outputCount()) + " outputs");
    Dim part = size.ceilDiv(Dim(count));
    parts.assign(count, part);
    parts.back() = size - part * Dim(count - 1);
  }
  if (parts.size() != n.outputCount())
    return n.fail(Twine(parts.size()) + " parts for " + Twine(n.outputCount()) + " outputs");
  auto x = knownInput(n, 0);
  Dim start(0);
  for (auto [index, part] : llvm::enumerate(parts)) {
    if (part.isStatic() && (part.value() < 0 || (size.isStatic() && part.value() > size.value())))
      return n.fail("a part has size " + part.str() + " of " + size.str());
    auto number = static_cast<unsigned>(index);
    if (x && start.isStatic() && part.isStatic() && x->shape.size() == 1 &&
        start.value() + part.value() <= x->shape[0]) {
      KnownInts slice = sliceKnown(*x, {start.value()}, {part.value()}, {1});
      n.resultKnown(number, slice.values, slice.shape, n.inputType(0));
    } else if (n.wants(number)) {
      n.result(number, n.slice(n.operand(0), axis, start, part));
    }
    start = start + part;
  }
  if (start.isStatic() && size.isStatic() && !(start == size))
    return n.fail("the parts add up to " + start.str() + ", not " + size.str());
  n.takeAsEqual(start, size);
}

void concat(NodeImporter &n) {
  if (!n.hasAttribute("axis"))
    return n.fail("attribute 'axis' is missing");
  int64_t axis = n.axis(n.intAttribute("axis", 0), n.rank(0));
  if (n.inputCount() == 1)
    return n.forward(0, 0);
  SmallVector<Value> parts;
  for (unsigned i = 0; i < n.inputCount(); ++i)
    parts.push_back(n.operand(i));
  n.result(0, n.concat(parts, axis));
}

void trilu(NodeImporter &n) {
  bool upper = n.intAttribute("upper", 1) != 0;
  Dim k(0);
  if (n.has(1)) {
    DimShape values = n.requireKnown(1, "k");
    if (values.size() != 1)
      return n.fail("k is not one number");
    k = values[0];
  }
  DimShape shape = n.shape(0);
  if (shape.size() < 2)
    return n.fail("needs at least two dims");
  Value x = n.operand(0);
  if (k.isStatic())
    return n.result(0, n.build<nn::TriluOp>(x, {n.flag("upper", upper), n.i64("k", k.value())}));
  // A diagonal that depends on an input shape: compare column - row with it.
  Value zero = n.scalar(n.i64Type(), 0), one = n.scalar(n.i64Type(), 1);
  Dim rows = shape[shape.size() - 2], columns = shape.back();
  Value row = n.reshape(n.build<nn::IotaOp>({zero, one}, n.dims("size", {rows})), {rows, Dim(1)});
  Value column = n.build<nn::IotaOp>({zero, one}, n.dims("size", {columns}));
  Value diagonal = n.add(row, n.dimConstant({k}, {}, n.i64Type()));
  Value keep =
      upper ? n.build<nn::GreaterEqualOp>({column, diagonal}) : n.build<nn::LessEqualOp>({column, diagonal});
  n.result(0, n.build<nn::WhereOp>({keep, x, n.scalar(n.inputType(0), 0)}));
}

} // namespace

void registerSlices(HandlerTable &table) {
  table.add("", "Slice", 1, 5, slice);
  table.add("", "Split", 1, 2, split);
  table.add("", "Concat", 1, HandlerTable::anyNumber, concat);
  table.add("", "Trilu", 1, 2, trilu);
}

} // namespace fusion::onnx
