// Arguments with room to grow: caches that a graph extends in place. Attributes of the entry function say so;
// what ops mean does not change, and the reference takes no notice.
#pragma once

#include "ir/dialect/Dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace fusion::nn {

/// On an argument: dims of its buffer, row-major. The argument is the front corner of it.
inline constexpr llvm::StringLiteral storageAttr = "nn.storage";
/// On a result: the number of the argument in whose buffer it lies, from the front corner on. The result is
/// nn.concat(argument, new…) or nn.cache_write(argument, new, rows), of which only what is new has to be
/// written, or the state that an nn.linear_attention makes of the argument, which nothing else reads, or,
/// through reshapes of either, the argument's only reader nn.scatter_nd(argument, places, new), or
/// nn.cache_write(argument, new, rows) that does not grow, where the argument fills its buffer.
inline constexpr llvm::StringLiteral aliasAttr = "nn.alias";

std::optional<DimShape> storageOf(mlir::func::FuncOp function, unsigned argument);

/// The nn.concat or nn.cache_write that makes a value, or null. Operand 0 is the past, operand 1 what is new.
mlir::Operation *cacheWriteOf(mlir::Value value);

/// Whether an nn.scatter_nd or an nn.cache_write that does not grow makes it, or a group that yields one: what
/// lies in the same buffer is reshaped as the buffer is.
bool replacesRows(mlir::Value value);

/// What a value is a reshape of: through any number of them.
mlir::Value behindReshapes(mlir::Value value);

/// The values that the attributes of `function` place in an argument's buffer, and that argument: results of
/// cacheWriteOf(), nn.linear_attention and nn.scatter_nd, or of a group that yields one.
llvm::DenseMap<mlir::Value, mlir::BlockArgument> valuesInPlace(mlir::func::FuncOp function);

} // namespace fusion::nn
