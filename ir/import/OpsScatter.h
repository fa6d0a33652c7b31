// Scattered updates that are added, multiplied or compared.
#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

/// nn.scatter_reduce of data, index tuples and updates, by the name that ONNX has for it.
mlir::Value scatterReduced(NodeImporter &node, llvm::ArrayRef<mlir::Value> operands,
                           llvm::StringRef reduction);

} // namespace fusion::onnx
