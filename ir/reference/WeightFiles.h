// The tensors behind nn.weight ops.
#pragma once

#include "ir/base/MappedFile.h"
#include "ir/base/Tensor.h"
#include "ir/dialect/Dialect.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fusion {

/// Opens each file once; thread-safe.
class WeightFiles {
public:
  /// `baseFolder`: the graph file's folder; empty is the working folder.
  explicit WeightFiles(std::string baseFolder) : baseFolder(std::move(baseFolder)) {}

  /// All that rank `rank`'s file holds of it, also where the op is a part. The tensor lies in the mapped
  /// file, which lives as long as it does; 4-bit types are unpacked to one value a byte, and a misaligned
  /// tensor is copied, and so is one in parts. A relative path is looked up in the base folder, then in the
  /// working folder. A missing or short file is an error that names the weight and the path.
  Result<Tensor> load(nn::WeightOp weight, int64_t rank = 0);

private:
  using Place = std::pair<std::string, uint64_t>; ///< path and offset
  Result<Tensor> loadSpan(nn::WeightOp weight, const Place &place, uint64_t length, DType type,
                          const Shape &shape);
  Result<Tensor> loadParts(nn::WeightOp weight);
  Result<std::shared_ptr<MappedFile>> open(const std::string &path);

  std::string baseFolder;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<MappedFile>> files;
  /// Unpacked 4-bit tensors by path, offset, type and count: unpacking happens once.
  std::map<std::tuple<std::string, uint64_t, DType, int64_t>, Tensor> unpacked;
  /// Parts that were put side by side, by their places, type and count.
  std::map<std::tuple<std::vector<Place>, DType, int64_t>, Tensor> joined;
};

} // namespace fusion
