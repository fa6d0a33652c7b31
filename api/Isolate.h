// A subgraph as a program of its own.
#pragma once

#include "ir/dialect/SymbolicShapes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <set>
#include <string>

namespace fusion {

/// A module whose @main takes `inputs` and returns `outputs`, computed by copies of `ops`. Small constants
/// that they read are copied too. With `symbols` there is one more argument, which nobody reads: it has a dim
/// for each of them, so that inputs bind all. `copies`, if given, takes the copy of each op.
mlir::OwningOpRef<mlir::ModuleOp> isolate(llvm::ArrayRef<mlir::Operation *> ops,
                                          llvm::ArrayRef<mlir::Value> inputs,
                                          llvm::ArrayRef<mlir::Value> outputs,
                                          const nn::SymbolicShapes &shapes,
                                          const std::set<std::string> &symbols = {},
                                          llvm::SmallVectorImpl<mlir::Operation *> *copies = nullptr);

} // namespace fusion
