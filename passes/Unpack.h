// Packed projections apart again, so that each part can be fused or divided on its own.
#pragma once

#include "passes/ShapeTable.h"

namespace fusion {

/// Rewrites every product by a parameter that is only read through slices of its columns into one product a
/// slice, by a slice of the parameter: packed QKV, packed gate and up. Exact. A bias, a split of the last dim
/// into heads and a transpose may stand between. Only where `wanted`, which sees the slices.
void unpackProjections(mlir::func::FuncOp function, ShapeTable &shapes,
                       llvm::function_ref<bool(llvm::ArrayRef<nn::SliceOp>)> wanted);

} // namespace fusion
