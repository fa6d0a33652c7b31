// An ONNX file, mapped and parsed, whose tensor contents stay in the mapping.
#pragma once

#include "ir/base/MappedFile.h"
#include "ir/base/Result.h"
#include "ir/import/onnx.pb.h"

#include <memory>
#include <optional>
#include <string>

namespace fusion::onnx {

struct ModelFile {
  std::shared_ptr<MappedFile> file;
  /// Without any raw_data: rawData() tells where that is.
  proto::ModelProto model;
};

/// Checks that the file is an ONNX model with a graph, an IR version and opset imports that can be read.
Result<ModelFile> openModel(const std::string &path);

/// A range of bytes of the model file.
struct FileRange {
  uint64_t offset = 0, length = 0;
};
/// Where the raw_data of a tensor of a ModelFile lies; nothing if the tensor has none.
std::optional<FileRange> rawData(const proto::TensorProto &tensor);

} // namespace fusion::onnx
