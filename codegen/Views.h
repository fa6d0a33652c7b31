// Strided views: reshapes, transposes, slices and expands that cost nothing.
#pragma once

#include "ir/dialect/SymbolicShapes.h"

namespace fusion {

/// Element (i0, i1, …) is at base[offset + Σ ij * strides[j]]; all in elements. An expanded dim has stride 0.
struct View {
  mlir::Value base;
  Dim offset = 0;
  DimShape shape;
  DimShape strides;

  bool isContiguous() const; ///< row-major without gaps (dims of size 1 and offset do not matter)
  static View contiguous(mlir::Value base, DimShape shape);
  friend bool operator==(const View &, const View &) = default;
};

/// Whether the elements lie two to a byte, low half first: 4-bit weights and constants do, other 4-bit values
/// have a byte each.
bool isPacked(const View &view);

/// The view of an op's result given the view of its operand; nothing when it must be copied (a reshape across
/// strides that do not merge) or when the op moves no data that way.
std::optional<View> viewThrough(mlir::Operation *op, const View &operand, const nn::SymbolicShapes &shapes);
/// The inverse, for a transpose or a reshape: where the operand's elements lie, given where the result's do.
std::optional<View> viewBefore(mlir::Operation *op, const View &result, const nn::SymbolicShapes &shapes);

/// For every value of a function: whose memory it is. Values that a kernel writes, arguments, constants and
/// weights are their own base, contiguous. An argument with nn.storage lies in the corner of a larger buffer,
/// and so does the value that extends it in place.
class Views {
public:
  /// `arguments`: for each argument where it lies in memory of values outside, with base null for one of its
  /// own; those past the end have their own.
  static Views compute(mlir::func::FuncOp function, const nn::SymbolicShapes &shapes,
                       llvm::ArrayRef<View> arguments = {});
  const View &operator[](mlir::Value value) const;
  bool isView(mlir::Operation *op) const; ///< needs no kernel
  /// Whether a kernel writes the value into an argument's buffer: its base.
  bool isInPlace(mlir::Value value) const { return inPlace.contains(value); }

private:
  llvm::DenseMap<mlir::Value, mlir::BlockArgument> inPlace;
  llvm::DenseMap<mlir::Value, View> views;
};

} // namespace fusion
