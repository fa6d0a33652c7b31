// What ops share that read pictures between their elements.
#pragma once

#include "ir/import/OpsShared.h"

namespace fusion::onnx {

/// Places of a region are not spelled beyond this many.
constexpr int64_t mostRegionPlaces = int64_t(1) << 16;

/// Computed places and weights, in f32.
class Regions {
public:
  explicit Regions(NodeImporter &node) : n(node) {}

  mlir::Value number(double value) { return n.scalar(n.f32Type(), value); }
  mlir::Value integer(const Dim &dim) { return n.dimConstant(dim, {}, n.i64Type()); }
  mlir::Value floated(const Dim &dim) { return n.cast(integer(dim), n.f32Type()); }
  mlir::Value least(mlir::Value a, mlir::Value b) { return n.build<nn::MinOp>({a, b}); }
  mlir::Value largest(mlir::Value a, mlir::Value b) { return n.build<nn::MaxOp>({a, b}); }
  mlir::Value both(mlir::Value a, mlir::Value b) { return n.build<nn::AndOp>({a, b}); }
  mlir::Value isWithin(mlir::Value x, double low, mlir::Value high) {
    return both(n.build<nn::GreaterEqualOp>({x, number(low)}), n.build<nn::LessEqualOp>({x, high}));
  }
  /// 0, 1, … as f32.
  mlir::Value counted(int64_t count) { return n.cast(countFrom(n, 0, count), n.f32Type()); }
  mlir::Value columnOf(mlir::Value table, int64_t column) { // [rows, columns] as [rows, 1]
    return n.slice(table, 1, column, 1);
  }

  /// Two neighbours along a dim and their weights, of one shape.
  struct Tap {
    mlir::Value index, weight;
  };
  using Taps = std::vector<Tap>;

  /// Of coordinates `x`, moved inside: `valid` says which count at all.
  Taps clampedTaps(mlir::Value x, const Dim &size, mlir::Value valid) {
    const mlir::Value last = floated(size - 1), one = number(1), zero = number(0);
    x = least(largest(x, zero), last);
    const mlir::Value low = n.build<nn::FloorOp>(x), past = n.sub(x, low);
    auto weight = [&](mlir::Value value) { return n.build<nn::WhereOp>({valid, value, zero}); };
    return {{n.cast(low, n.i64Type()), weight(n.sub(one, past))},
            {n.cast(least(n.add(low, one), last), n.i64Type()), weight(past)}};
  }

  /// Of coordinates with zeros around the elements.
  Taps zeroPaddedTaps(mlir::Value x, const Dim &size) {
    const mlir::Value last = floated(size - 1), one = number(1), zero = number(0);
    const mlir::Value low = n.build<nn::FloorOp>(x), past = n.sub(x, low);
    Taps taps;
    for (auto [place, weight] : {std::pair(low, n.sub(one, past)), std::pair(n.add(low, one), past)}) {
      const mlir::Value inside = n.build<nn::WhereOp>({isWithin(place, 0, last), weight, zero});
      taps.push_back({n.cast(least(largest(place, zero), last), n.i64Type()), inside});
    }
    return taps;
  }

  /// x of [batch, channels, sizes…] as rows of channels, [batch * sizes…, channels], in f32.
  mlir::Value rowsOf(mlir::Value x) {
    if (n.failed())
      return {};
    const DimShape shape = n.shapeOf(x);
    const Dim places = product(llvm::ArrayRef<Dim>(shape).drop_front(2));
    const mlir::Value flat = n.transpose(n.reshape(x, {shape[0], shape[1], places}), {0, 2, 1});
    return n.cast(n.reshape(flat, {shape[0] * places, shape[1]}), n.f32Type());
  }

  /// `indices` of [regions, …]: which batch entry each is of, as an offset to its places.
  mlir::Value batchOffset(mlir::Value indices, const Dim &height, const Dim &width) {
    return n.mul(n.cast(indices, n.i64Type()), integer(height * width));
  }

  NodeImporter &n;
};

/// Whether regions of `sizes` are not too large: fails else.
bool fitsRegion(NodeImporter &node, llvm::ArrayRef<int64_t> sizes);
void deformedConvolution(NodeImporter &node);

} // namespace fusion::onnx
