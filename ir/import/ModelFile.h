// An ONNX file, mapped and parsed, whose tensor contents stay in the mapping.
#pragma once

#include "ir/base/MappedFile.h"
#include "ir/base/Result.h"
#include "ir/import/MemoryWeight.h"
#include "ir/import/onnx.pb.h"

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace fusion::onnx {

struct ModelFile {
  std::shared_ptr<MappedFile> file;
  /// Without any raw_data: rawData() tells where that is.
  proto::ModelProto model;
  /// External data by location that is in memory; anything else lies in files beside the model.
  std::map<std::string, std::shared_ptr<MappedFile>> memory;
};

/// Checks that the file is an ONNX model with a graph, an IR version and opset imports that can be read.
/// `contents`: its bytes where they are in memory; `path` is what messages call it then.
Result<ModelFile> openModel(const std::string &path, std::shared_ptr<MappedFile> contents = nullptr);

/// Lets initialisers, and graph inputs without one, take their contents from `weights` by name. Errors
/// (BadInput): a name that the graph has not, another type or shape.
Status takeWeights(ModelFile &model, const std::map<std::string, MemoryWeight> &weights);

/// A range of bytes of the model file.
struct FileRange {
  uint64_t offset = 0, length = 0;
};
/// Where the raw_data of a tensor of a ModelFile lies; nothing if the tensor has none.
std::optional<FileRange> rawData(const proto::TensorProto &tensor);

} // namespace fusion::onnx
