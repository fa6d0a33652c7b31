// What a Graph holds.
#pragma once

#include "api/Fusion.h"
#include "api/Lower.h"

namespace fusion {

struct Graph::Implementation {
  std::string path;
  std::string weightFolder; ///< where relative weight paths are looked up
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<std::shared_ptr<MappedFile>> memory; ///< what the module names by paths that are no files
  std::vector<Port> inputs, outputs;
};

} // namespace fusion
