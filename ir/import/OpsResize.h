// Resize along axes of which a size is a symbol.
#pragma once

#include "ir/import/NodeImporter.h"

#include <optional>
#include <string>

namespace fusion::onnx {

/// What the attributes of a Resize say of all its axes.
struct Sampling {
  std::string mode, coordinates, rounding, policy;
  bool antialias = false, excludesOutside = false;
  double cubic = -0.75, outside = 0; ///< outside: where tf_crop_and_resize reaches past the input
};

/// Results for each input along an axis, where the graph gives that; else the sizes say it.
using AxisScale = std::optional<double>;

/// The sizes of results, of axes with `from` inputs, where each scale is the quotient of both, computed in
/// the run, as exporters spell sizes for opsets without them; else empty.
DimShape sizesOfScales(NodeImporter &node, unsigned input, llvm::ArrayRef<Dim> from);
/// How many results `scale` makes of `from` inputs; fails where that is not exact.
Dim scaledSize(NodeImporter &node, int64_t axis, const Dim &from, double scale);
/// `x` with `to` results along an axis: its elements where `how` chooses them, else sums in f32, for x of
/// f32.
mlir::Value resizedToSymbol(NodeImporter &node, mlir::Value x, int64_t axis, const Dim &to, AxisScale scale,
                            const Sampling &how);

} // namespace fusion::onnx
