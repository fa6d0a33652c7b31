// Graphs inside of nodes: branches of If, bodies of Loop and Scan.
#pragma once

#include "ir/import/Graph.h"

namespace fusion::onnx {

using Values = std::vector<GraphValue *>;

/// The outputs of a graph that is run in place; nothing where the node failed.
std::optional<Values> inlined(NodeImporter &n, const proto::GraphProto &graph,
                              llvm::ArrayRef<GraphValue *> inputs = {});
/// As a value of the module; null where the node failed.
mlir::Value built(NodeImporter &n, GraphValue *value);
/// Input `index` as it is, built or not.
GraphValue *outerValue(NodeImporter &n, unsigned index);
GraphValue *knownScalar(NodeImporter &n, int64_t value, mlir::Type type);
/// A value that is built.
GraphValue *graphValue(NodeImporter &n, mlir::Value value);
/// Whether a condition holds; nothing where that depends on run-time data.
std::optional<bool> holds(NodeImporter &n, GraphValue *condition);

/// Loop as an nn.loop. `condition`: before the first step.
void runLoop(NodeImporter &n, const proto::GraphProto &body, GraphValue *condition);

} // namespace fusion::onnx
