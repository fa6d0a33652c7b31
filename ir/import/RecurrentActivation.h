// What recurrent ops apply to their gates.
#pragma once

#include "ir/import/NodeImporter.h"

namespace fusion::onnx {

/// One of the activations that these ops name, with its parameters.
struct Activation {
  std::string name;
  double alpha = 0, beta = 0;

  mlir::Value of(NodeImporter &node, mlir::Value x) const;
};

/// Those of all directions, as the node's attributes say; `usual` are those of one.
std::vector<Activation> recurrentActivations(NodeImporter &node, int64_t directions,
                                             llvm::ArrayRef<llvm::StringRef> usual);

} // namespace fusion::onnx
