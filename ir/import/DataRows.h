// Rows whose number is data: those that NonZero finds.
#pragma once

#include "ir/import/InputShapes.h"
#include "ir/import/NodeImporter.h"

#include <map>

namespace fusion::onnx {

/// Where all that is made of the rows that a NonZero finds is made row by row, and ends as rows that
/// ScatterND writes, all rows that could be found are taken instead, and those that were not found are not
/// written. The first import finds out: it names their number by a symbol of its own, by which shapes tell
/// which values have such rows. The second takes all of them; where the first fails, or a value goes
/// elsewhere, NonZero is refused.
class DataRows {
public:
  enum class Use { Named, All, Refused } use = Use::Named;

  /// What the next NonZero finds of the elements of `x`, places [rank, rows]; null where that is refused.
  mlir::Value places(NodeImporter &node, mlir::Value x);
  /// The indices of the next ScatterND, with an index out of range where a row is none of those found.
  mlir::Value written(NodeImporter &node);
  /// Whether two dims may be taken as equal from here on: the number of rows is nothing else.
  bool mayEqual(const Dim &left, const Dim &right);

  static DataRows refused() {
    DataRows rows;
    rows.use = Use::Refused;
    return rows;
  }
  bool areNamed() const { return use == Use::Named && found > 0; }
  /// For the import after one in which rows are named.
  DataRows next(mlir::ModuleOp module) const;

private:
  bool hasRows(const DimShape &shape) const;
  bool staysInRows(mlir::Operation &op, llvm::function_ref<const DimShape &(mlir::Value)> shapeOf) const;

  size_t found = 0, scatters = 0;
  bool isEquated = false;
  DimReplacements counts;           ///< of all rows, by the symbol of those found
  std::map<size_t, size_t> writers; ///< the NonZero whose rows a ScatterND writes, both by order
  std::vector<mlir::Value> masks;   ///< of each NonZero
};

} // namespace fusion::onnx
