// The contents of a TensorProto: where they are, and their values on demand.
#pragma once

#include "ir/base/Tensor.h"
#include "ir/import/ModelFile.h"

#include <map>
#include <optional>
#include <string>

namespace fusion::onnx {

/// The element type of a TensorProto.DataType; an error names types that no tensor here can have.
Result<DType> elementTypeOf(int32_t dataType);

/// Floats that no op computes with: their codes are stored, and decoded when weights are loaded.
enum class FloatCode : uint8_t {
  None,
  E2M1, ///< FLOAT4E2M1, codes of 4 bits; decoded to f8E4M3FN
  E8M0, ///< FLOAT8E8M0, a power of two; decoded to bf16
};

struct TensorInfo {
  DType type = DType::F32; ///< of the codes, where there are some
  FloatCode code = FloatCode::None;
  Shape shape;
  /// Where the bytes lie in a file; not set if the values are fields of the message.
  struct Place {
    std::string path; ///< relative to the folder of the model, or of memory
    uint64_t offset = 0, length = 0;
  };
  std::optional<Place> place;
  bool external = false;

  int64_t elements() const { return elementCount(shape); }
};

/// Finds and checks tensor contents without reading them.
class TensorStore {
public:
  /// Both outlive the store. `modelPath` is the path as the user gave it.
  /// `trustsPaths`: external data may be anywhere.
  TensorStore(const ModelFile &model, std::string modelPath, bool trustsPaths = false);

  /// Fails if the contents are missing, too short, of the wrong size, or outside the folder of the model.
  Result<TensorInfo> describe(const proto::TensorProto &tensor);
  Result<Tensor> load(const proto::TensorProto &tensor, const TensorInfo &info);
  /// The file name of the model, as places refer to it.
  const std::string &fileName() const { return name; }

private:
  Result<TensorInfo::Place> externalPlace(const proto::TensorProto &tensor, uint64_t needed);

  const ModelFile &model;
  std::string folder, name;
  const bool trustsPaths;
  std::map<std::string, uint64_t> sizes; ///< of external files already looked at
};

} // namespace fusion::onnx
