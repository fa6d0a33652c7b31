// Elements that a known mask, a length or the largest one selects.
#include "ir/import/Graph.h"
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

void sizeFromData(NodeImporter &n) { n.fail("how many elements the result has depends on run-time data"); }

/// Places of a mask that is known at import; of others the result's size is data.
void compress(NodeImporter &n) {
  const auto condition = n.known(1);
  Value x = n.operand(0);
  if (n.failed())
    return;
  if (!condition)
    return sizeFromData(n);
  int64_t axis = 0;
  if (n.hasAttribute("axis"))
    axis = n.axis(n.intAttribute("axis", 0), n.rank(0));
  else
    x = n.reshape(x, {product(n.shapeOf(x))});
  DimShape places;
  for (auto [place, taken] : llvm::enumerate(*condition))
    if (!(taken == Dim(0)))
      places.push_back(static_cast<int64_t>(place));
  const auto count = static_cast<int64_t>(places.size());
  n.result(0, n.build<nn::GatherOp>({x, n.dimConstant(places, {count}, n.i64Type())}, n.i64("axis", axis)));
}

/// Old exporters spell a range so: the places of ones in a vector that holds nothing else.
void nonZero(NodeImporter &n) {
  const auto known = n.known(0);
  const DimShape shape = n.shape(0);
  if (n.failed())
    return;
  if (known && llvm::all_of(*known, [](const Dim &value) { return value.isStatic(); })) {
    std::vector<int64_t> places;
    for (auto [place, value] : llvm::enumerate(*known))
      if (!(value == Dim(0)))
        places.push_back(static_cast<int64_t>(place));
    DimShape all;
    int64_t after = static_cast<int64_t>(known->size());
    for (const Dim &dim : shape) {
      after /= std::max<int64_t>(dim.value(), 1);
      for (int64_t place : places)
        all.push_back(place / std::max<int64_t>(after, 1) % dim.value());
    }
    return n.resultKnown(0, all, {static_cast<int64_t>(shape.size()), static_cast<int64_t>(places.size())},
                         n.i64Type());
  }
  auto filled = n.operand(0).getDefiningOp<nn::ExpandOp>();
  const bool isFilled = filled && product(n.shapeOf(filled.getX())) == Dim(1);
  const auto number = isFilled ? fusion::constantScalar(filled.getX()) : std::nullopt;
  if (shape.size() == 1 && number && *number != 0)
    return n.result(0, n.reshape(countFrom(n, 0, shape[0]), {Dim(1), shape[0]}));
  Value places = n.owner().dataRows.places(n, n.operand(0));
  if (!places)
    return sizeFromData(n);
  n.result(0, places);
}

/// Before opset 13 all dims from the axis on are one.
void hardmax(NodeImporter &n) {
  const bool isOld = n.opset() < 13;
  int64_t axis = n.axis(n.intAttribute("axis", isOld ? 1 : -1), n.rank(0));
  Value x = n.operand(0);
  if (n.failed())
    return;
  const DimShape shape = n.shape(0);
  if (isOld) {
    const auto at = shape.begin() + axis;
    x = n.reshape(x, {product(DimShape(shape.begin(), at)), product(DimShape(at, shape.end()))});
    axis = 1;
  }
  DimShape along(n.shapeOf(x).size(), Dim(1));
  along[static_cast<size_t>(axis)] = n.shapeOf(x)[static_cast<size_t>(axis)];
  Value largest = n.build<nn::ArgMaxOp>(x, {n.i64("axis", axis), n.flag("keepdims", true)}, n.i64Type());
  Value places = n.reshape(countFrom(n, 0, along[static_cast<size_t>(axis)]), along);
  n.result(0, n.reshape(n.cast(n.build<nn::EqualOp>({places, largest}), n.inputType(0)), shape));
}

/// The first entries of each sequence backwards, as many as it has.
void reverseSequence(NodeImporter &n) {
  const int64_t batch = n.axis(n.intAttribute("batch_axis", 1), n.rank(0)),
                time = n.axis(n.intAttribute("time_axis", 0), n.rank(0));
  if (n.failed())
    return;
  const DimShape shape = n.shape(0);
  if (batch == time || n.rank(1) != 1)
    return n.fail("wants lengths [batch] and a time axis other than the batch's");
  DimShape alongTime(shape.size(), Dim(1)), alongBatch = alongTime;
  alongTime[static_cast<size_t>(time)] = shape[static_cast<size_t>(time)];
  alongBatch[static_cast<size_t>(batch)] = shape[static_cast<size_t>(batch)];
  Value step = n.reshape(countFrom(n, 0, shape[static_cast<size_t>(time)]), alongTime);
  Value length = n.reshape(n.cast(n.operand(1), n.i64Type()), alongBatch);
  Value last = n.sub(length, n.scalar(n.i64Type(), 1));
  Value from = n.build<nn::WhereOp>({n.build<nn::LessOp>({step, length}), n.sub(last, step), step});
  n.result(0, n.build<nn::GatherElementsOp>({n.operand(0), n.expand(from, shape)}, n.i64("axis", time)));
}

/// The middle of what is larger, zeros around what is smaller.
void centerCropPad(NodeImporter &n) {
  const DimShape target = n.requireKnown(1, "shape");
  std::vector<int64_t> all(static_cast<size_t>(n.rank(0)));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<int64_t>(i);
  const std::vector<int64_t> axes = n.intsAttribute("axes", all);
  Value x = n.operand(0);
  if (n.failed())
    return;
  if (axes.size() != target.size())
    return n.fail("shape has " + Twine(target.size()) + " numbers for " + Twine(axes.size()) + " axes");
  DimShape low(all.size(), Dim(0)), high = low;
  bool isPadded = false;
  for (auto [given, size] : llvm::zip(axes, target)) {
    const int64_t axis = n.axis(given, n.rank(0));
    if (n.failed())
      return;
    const Dim before = n.shape(0)[static_cast<size_t>(axis)], missing = size - before;
    if (!missing.isStatic())
      return n.fail("whether dim " + Twine(axis) + ", " + before.str() + ", is cropped or padded to " +
                    size.str() + " depends on sizes");
    if (missing.value() < 0)
      x = n.slice(x, axis, Dim(-missing.value() / 2), size);
    low[static_cast<size_t>(axis)] = Dim(std::max<int64_t>(missing.value(), 0) / 2);
    high[static_cast<size_t>(axis)] = Dim(std::max<int64_t>(missing.value() + 1, 0) / 2);
    isPadded |= missing.value() > 0;
  }
  if (isPadded)
    x = n.build<nn::PadOp>({x, n.scalar(n.inputType(0), 0)}, {n.dims("low", low), n.dims("high", high)});
  n.result(0, x);
}

/// x * 2^y or x / 2^y; 0 where nothing is left.
void bitShift(NodeImporter &n) {
  const std::string direction = n.stringAttribute("direction", "");
  const auto type = llvm::dyn_cast_or_null<IntegerType>(n.inputType(0));
  if (n.failed())
    return;
  if (!type || type.getWidth() == 1 || (direction != "LEFT" && direction != "RIGHT"))
    return n.fail("wants integers and a direction, LEFT or RIGHT");
  const bool isSigned = !type.isUnsigned();
  const unsigned bits = type.getWidth();
  const Type bare = IntegerType::get(n.context(), bits, IntegerType::Unsigned);
  auto shifted = [&](Value x) { // without a sign; a negative number of places is one beyond the bits
    Value by = n.cast(n.operand(1), bare), fits = n.build<nn::LessOp>({by, n.scalar(bare, bits)});
    Value places = n.build<nn::MinOp>({by, n.scalar(bare, bits - 1)});
    Value power = n.build<nn::PowOp>({n.scalar(bare, 2), places}), whole = n.cast(x, bare);
    Value moved = direction == "LEFT" ? n.mul(whole, power) : n.div(whole, power);
    return n.cast(n.build<nn::WhereOp>({fits, moved, n.scalar(bare, 0)}), type);
  };
  Value x = n.operand(0);
  if (!isSigned || direction == "LEFT")
    return n.result(0, shifted(x));
  Value isNegative =
      n.build<nn::LessOp>({x, n.scalar(type, 0)}); // filled up with ones: the complement with zeros
  Value magnitude = shifted(n.build<nn::WhereOp>({isNegative, n.build<nn::NotOp>(x), x}));
  n.result(0, n.build<nn::WhereOp>({isNegative, n.build<nn::NotOp>(magnitude), magnitude}));
}

/// x / (bias + alpha / size * sum of squares of neighbouring channels)^beta
void localResponseNorm(NodeImporter &n) {
  const int64_t size = n.intAttribute("size", 0);
  const double alpha = n.floatAttribute("alpha", 1e-4), beta = n.floatAttribute("beta", 0.75),
               bias = n.floatAttribute("bias", 1);
  constexpr int64_t most = 512;
  if (!n.failed() && (size < 1 || size > most || n.rank(0) < 2))
    n.fail("a size of " + Twine(size) + " is not supported");
  if (n.failed())
    return;
  const Type f32 = n.f32Type();
  Value x = n.cast(n.operand(0), f32), squares = n.mul(x, x);
  const Dim channels = n.shape(0)[1];
  DimShape low(n.shape(0).size(), Dim(0)), high = low;
  low[1] = Dim((size - 1) / 2);
  high[1] = Dim(size / 2);
  squares = n.build<nn::PadOp>({squares, n.scalar(f32, 0)}, {n.dims("low", low), n.dims("high", high)});
  Value sum;
  for (int64_t i = 0; i < size; ++i) {
    Value part = n.slice(squares, 1, Dim(i), channels);
    sum = sum ? n.add(sum, part) : part;
  }
  Value scale = n.add(n.mul(sum, n.scalar(f32, alpha / static_cast<double>(size))), n.scalar(f32, bias));
  n.result(0, n.cast(n.div(x, n.build<nn::PowOp>({scale, n.scalar(f32, beta)})), n.inputType(0)));
}

} // namespace

void registerSelections(HandlerTable &table) {
  table.add("", "Compress", 2, 2, compress);
  table.add("", "NonZero", 1, 1, nonZero);
  for (StringRef op : {"Unique", "NonMaxSuppression"})
    table.add("", op, 0, HandlerTable::anyNumber, sizeFromData);
  table.add("", "Hardmax", 1, 1, hardmax);
  table.add("", "ReverseSequence", 2, 2, reverseSequence);
  table.add("", "CenterCropPad", 2, 2, centerCropPad);
  table.add("", "BitShift", 2, 2, bitShift);
  table.add("", "LRN", 1, 1, localResponseNorm);
}

} // namespace fusion::onnx
