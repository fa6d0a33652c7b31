// Values in which the rows of tokens and their slots are merged into one dim, seen with both apart.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// New ops are exact: the same elements with the same roundings.
class RoutedRows {
public:
  /// `apart`: the rows and, last, the slots.
  RoutedRows(DimShape apart, Raiser &raiser)
      : apart(std::move(apart)), merged(product(this->apart)), raiser(raiser) {}

  const DimShape &rowsAndSlots() const { return apart; }
  bool isMerged(mlir::Value value) const;
  /// `value`, [rows * slots, ...], as [rows..., slots, ...]: ops on single elements and slices are moved
  /// before the merge, gathers get indices that are apart.
  mlir::Value split(mlir::Value value);
  /// `value`, [rows..., slots, ...], as [rows..., 1, ...] if all slots of a row are the same; null if that is
  /// not known.
  mlir::Value ofOneSlot(mlir::Value value);
  /// A view of `value`, past other views of it.
  mlir::Value shaped(mlir::Value value, const DimShape &shape);

private:
  mlir::Value splitAsMade(mlir::Value value, const DimShape &shape);
  mlir::Value splitOperands(mlir::Operation *op, const DimShape &shape);
  DimShape splitShape(const DimShape &shape) const;

  DimShape apart;
  Dim merged;
  Raiser &raiser;
};

} // namespace fusion::raise
