// What a Graph holds.
#pragma once

#include "api/Fusion.h"
#include "api/Lower.h"

#include <set>

namespace fusion {

/// Where a graph was read from, to read it again with more known of it.
struct GraphSource {
  std::string path;
  ImportOptions import; ///< holds what the module names by paths that are no files
  int ranks = 1;
  std::optional<Sampling> sampling;
  std::shared_ptr<MappedFile> file; ///< as it was; null for a model in memory, and for one in several files

  /// Whether it can: a graph as text has no importer, and one in several files is not read again.
  bool canReadAgain() const;
  /// The graph where these symbols of the inputs' dims are 1. An error if the file has changed since.
  Result<Graph> whereOne(const std::set<std::string> &symbols) const;
};

struct Graph::Implementation {
  /// Two graphs in one, of which an input decides which one runs: there is no module of both.
  struct Choice {
    Port input;      ///< one boolean, that neither of the two has
    Graph graphs[2]; ///< where it is false, and where it is true; either may be such a choice
    std::optional<Error> refused[2]; ///< why there is no such graph: an error when a run asks for it
  };
  /// What a caller can do who needs one graph before it runs: an error where there is such a choice.
  Status isOne() const;

  std::string path;
  std::string weightFolder; ///< where relative weight paths are looked up
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::shared_ptr<const GraphSource> source;
  std::vector<Port> inputs, outputs;
  std::optional<Choice> choice; ///< then `module` is null
};

} // namespace fusion
