// Pad: constants around, or elements chosen by index.
#include "ir/import/Graph.h"
#include "ir/import/OpsShared.h"

#include <numeric>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// What is put in front of and behind each dim; what is cut off there.
struct Margins {
  DimShape low, high, cutLow, cutHigh;
  bool cuts = false;
};

std::optional<Margins> collect(NodeImporter &n, ArrayRef<Dim> pads, ArrayRef<int64_t> axes) {
  const int64_t rank = n.rank(0);
  const DimShape none(rank, Dim(0));
  Margins margins{none, none, none, none};
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = n.axis(axes[i], rank);
    if (n.failed())
      return std::nullopt;
    for (bool front : {true, false}) {
      const Dim amount = n.owner().resolve(pads[front ? i : i + axes.size()]);
      if (!amount.knownNonNegative() && (Dim(0) - amount).knownNonNegative()) {
        margins.cuts = true;
        (front ? margins.cutLow : margins.cutHigh)[axis] = Dim(0) - amount;
      } else { // if it turns out to be negative, nn.pad cuts
        (front ? margins.low : margins.high)[axis] = amount;
      }
    }
  }
  return margins;
}

/// For each place of the padded dim, the element that lies there.
Value chosen(NodeImporter &n, StringRef mode, const Dim &low, const Dim &size, const Dim &high) {
  const Type index = n.i64Type();
  const Value at = countFrom(n, Dim(0) - low, low + size + high), last = n.dimConstant(size - 1, {}, index);
  const Value zero = n.scalar(index, 0);
  if (mode == "edge")
    return n.build<nn::MinOp>({n.build<nn::MaxOp>({at, zero}), last});
  if (mode == "wrap")
    return n.build<nn::ModOp>({at, n.dimConstant(size, {}, index)});
  // There and back: size - 1 elements each way, as often as it takes.
  const Value period = n.build<nn::MaxOp>({n.add(last, last), n.scalar(index, 1)});
  const Value phase = n.build<nn::ModOp>({at, period});
  return n.build<nn::MinOp>({phase, n.sub(period, phase)});
}

void pad(NodeImporter &n) {
  const std::string mode = n.stringAttribute("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    return n.fail("mode '" + mode + "' is not supported");
  const bool byAttributes = n.opset() < 11;
  const std::vector<int64_t> given = n.intsAttribute("pads");
  const double number = n.floatAttribute("value", 0);
  const DimShape pads = byAttributes ? DimShape(given.begin(), given.end()) : n.requireKnown(1, "pads");
  const int64_t rank = n.rank(0);
  std::vector<int64_t> axes = n.has(3) ? n.requireConstants(3, "axes") : std::vector<int64_t>(rank);
  if (!n.has(3))
    std::iota(axes.begin(), axes.end(), 0);
  if (n.failed())
    return;
  if (pads.size() != 2 * axes.size())
    return n.fail(Twine(pads.size()) + " pads for " + Twine(axes.size()) + " axes");
  const auto margins = collect(n, pads, axes);
  if (!margins)
    return;
  Value x = n.operand(0);
  if (margins->cuts)
    for (int64_t i = 0; i < rank && !n.failed(); ++i)
      x = n.slice(x, i, margins->cutLow[i], n.shapeOf(x)[i] - margins->cutLow[i] - margins->cutHigh[i]);
  if (mode == "constant") {
    const Value value = n.has(2) ? n.reshape(n.operand(2), {}) : n.scalar(n.inputType(0), number);
    return n.result(
        0, n.build<nn::PadOp>({x, value}, {n.dims("low", margins->low), n.dims("high", margins->high)}));
  }
  for (int64_t i = 0; i < rank && !n.failed(); ++i)
    if (!(margins->low[i] == Dim(0)) || !(margins->high[i] == Dim(0)))
      x = n.build<nn::GatherOp>({x, chosen(n, mode, margins->low[i], n.shapeOf(x)[i], margins->high[i])},
                                n.i64("axis", i));
  n.result(0, x);
}

} // namespace

void registerPad(HandlerTable &table) { table.add("", "Pad", 1, 4, pad); }

} // namespace fusion::onnx
