// Values that are columns of the keys, as in a latent cache: the two share one tensor.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// Both are the same view of one tensor, as the graph spells it twice.
bool isSameView(mlir::Value x, mlir::Value y, ShapeTable &shapes);

/// What x and y, columns of one tensor that follow each other and are all of it, are together; null if they
/// are something else.
mlir::Value joinedColumns(mlir::Value x, mlir::Value y, Raiser &raiser);

/// `key` as a concatenation of columns that one of `value` begins, and `value` as columns of `key`, where
/// views hide that they are: a kernel reads what both are made of once.
void shareColumns(mlir::Value &key, mlir::Value &value, Raiser &raiser);

} // namespace fusion::raise
