// Keys and values in pages: those of an entry of the batch are gathered by its row of a block table.
#pragma once

#include "ir/dialect/Dialect.h"

namespace fusion::nn {

struct PagedKeys {
  mlir::Value pages; ///< what is gathered from along dim 0
  /// Integers [entries, pages of an entry], or [sequences, …] where there are `sequences`.
  mlir::Value table;
  mlir::Value sequences; ///< null, or integers [entries]: the table's row of each entry
  /// The dims of `pages` that hold key/value heads, rows of a page (0: a page is one row) and columns.
  unsigned headDim = 0, rowDim = 0, columnDim = 0;
  llvm::SmallVector<mlir::Operation *> ops; ///< of the elements, in block order
  mlir::Operation *tableOp = nullptr; ///< what takes the entries' rows of the table, if there are `sequences`
};

/// Pattern: [entries, heads, keys, columns] = gather(pages, table) along dim 0, through transposes and the
/// reshape that joins the pages of an entry with the rows of a page to keys. The table may be gather(table,
/// sequences) along dim 0 itself. Where sizes are not static they are for the caller to compare.
std::optional<PagedKeys> matchPagedKeys(mlir::Value elements);

} // namespace fusion::nn
