// ONNX files to modules of the nn dialect.
#pragma once

#include "ir/base/Dim.h"
#include "ir/base/Result.h"
#include "ir/base/Safetensors.h"
#include "ir/import/MemoryWeight.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>
#include <string>
#include <string_view>

namespace fusion {

struct ImportOptions {
  /// Graph inputs whose contents are known: they become constants and are no arguments of the function.
  NamedTensors constants;
  /// The same as text: a number, true or false; several with commas between them for a vector.
  std::map<std::string, std::string> constantTexts;
  /// Caches of GroupQueryAttention are buffers of full capacity, whatever the graph declares: they are as
  /// long behind the node as before it, and new tokens are written behind the valid ones.
  bool sharedCaches = false;
  /// Sizes of symbolic dims of inputs that are known, by the symbol's name. A graph that broadcasts one dim
  /// to another is imported as one where they are equal, unless it is known here that the one is 1. Names
  /// that no input has are errors, as are negative sizes.
  SymbolValues dims;
  /// The model's bytes where they are in memory.
  std::shared_ptr<MappedFile> contents;
  /// External data files in memory, by location.
  std::map<std::string, std::shared_ptr<MappedFile>> files;
  /// See onnx::takeWeights.
  std::map<std::string, onnx::MemoryWeight> weights;
  /// External data may lie anywhere, through links too; else only in the model's folder.
  bool trustPaths = false;
};

/// The symbol of a dim of a port that has none: an identifier.
std::string symbolName(std::string_view port, size_t dim);

/// An input of the graph, one boolean, from which alone it follows which branch of an If runs.
struct DecidingInput {
  std::string name;
  size_t index = 0; ///< among the inputs that are no constants
  Shape shape;
};

/// Imports the model file at `path` (opset 7 to 28) as a module with one function `main`.
///
/// Weights stay in their files: the module refers to them by path, offset and length. Shapes that depend on
/// contents of inputs are errors, as are files that are damaged in any way; every error is one line with the
/// file, the node where there is one, and the reason. The context needs the dialects of registerDialects().
/// If it is an error that a branch is not known, `deciding` gets the input that decides, if there is one:
/// with a constant for that input the graph can be imported.
Result<mlir::OwningOpRef<mlir::ModuleOp>> importOnnx(mlir::MLIRContext &context, const std::string &path,
                                                     const ImportOptions &options = {},
                                                     std::optional<DecidingInput> *deciding = nullptr);

} // namespace fusion
