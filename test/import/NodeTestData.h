// ONNX's node tests: folders with a one-op model, its inputs and the outputs it must have.
#pragma once

#include "ir/base/Tensor.h"
#include "ir/import/onnx.pb.h"

#include <string>
#include <vector>

namespace fusion::test {

struct NodeTestFolder {
  std::string source; ///< which collection it is from
  std::string path, name;
  onnx::proto::ModelProto model;
};

/// All folders of the collections on this machine: Debian's libonnx-testdata, the `onnx` wheel in the
/// project's .venv, and the folders that FUSION_ONNX_NODE_TESTS names, separated by colons.
std::vector<NodeTestFolder> findNodeTests();

/// The ops that the importer has a handler for: `Add`, `com.microsoft.FusedMatMul`.
std::vector<std::string> knownOps();

/// The ops of the model, subgraphs included, each once: `Add`, `com.microsoft.FusedMatMul`.
std::vector<std::string> opsOf(const onnx::proto::ModelProto &model);
/// Why the model's inputs and outputs cannot be tensors here; empty if they can.
std::string unsupportedType(const onnx::proto::ModelProto &model);

/// `input_0.pb`, … or `output_0.pb`, … of one data set folder, in order.
Result<std::vector<Tensor>> readTensors(const std::string &folder, const std::string &kind);
/// The data sets of a test.
std::vector<std::string> dataSets(const NodeTestFolder &test);

} // namespace fusion::test
