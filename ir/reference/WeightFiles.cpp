#include "ir/reference/WeightFiles.h"

#include "ir/dialect/Types.h"

#include <cstring>
#include <filesystem>

#include <fmt/format.h>

namespace fusion {

Result<std::shared_ptr<MappedFile>> WeightFiles::open(const std::string &path) {
  if (auto known = files.find(path); known != files.end())
    return known->second;
  std::filesystem::path wanted(path);
  const std::string beside = (std::filesystem::path(baseFolder) / wanted).string();
  const std::string place = MappedFile::exists(beside) ? beside : path;
  if (!MappedFile::exists(place)) {
    if (wanted.is_absolute())
      return badInput(fmt::format("no file {}", path));
    return badInput(fmt::format("no file {} in {} or in the working folder", path,
                                baseFolder.empty() ? "." : baseFolder));
  }
  auto file = MappedFile::open(place);
  if (file)
    files.emplace(path, *file);
  return file;
}

/// Two values a byte, low half first.
static Tensor unpackHalves(DType type, Shape shape, const uint8_t *packed) {
  Tensor tensor = Tensor::uninitialized(type, std::move(shape));
  uint8_t *values = tensor.as<uint8_t>();
  for (int64_t i = 0; i < tensor.size(); ++i) {
    int half = (packed[i / 2] >> (4 * (i % 2))) & 15;
    values[i] = static_cast<uint8_t>(type == DType::I4 ? (half ^ 8) - 8 : half);
  }
  return tensor;
}

Result<Tensor> WeightFiles::loadParts(nn::WeightOp weight) {
  llvm::SmallVector<Place> places;
  for (auto [path, offset] :
       llvm::zip(weight.getPartPaths()->getAsValueRange<mlir::StringAttr>(), *weight.getPartOffsets()))
    places.push_back({path.str(), static_cast<uint64_t>(offset)});
  const DType type = dtype(weight.getY());
  const Shape shape(weight.shapeInFile());
  Tensor &tensor = joined[{{places.begin(), places.end()}, type, elementCount(shape)}];
  if (tensor.data())
    return tensor.reshaped(shape);
  Tensor whole = Tensor::uninitialized(type, shape);
  const size_t bytes = whole.bytes() / places.size();
  const uint64_t length = static_cast<uint64_t>(weight.getLength()) / places.size();
  for (auto [i, place] : llvm::enumerate(places)) {
    auto part =
        loadSpan(weight, place, length, type, {elementCount(shape) / static_cast<int64_t>(places.size())});
    if (!part)
      return part.error();
    std::memcpy(whole.as<char>() + i * bytes, part->data(), bytes);
  }
  tensor = whole;
  return whole;
}

Result<Tensor> WeightFiles::load(nn::WeightOp weight, int64_t rank) {
  std::lock_guard lock(mutex);
  if (weight.getPartPaths())
    return loadParts(weight);
  Place place{weight.getPath().str(), static_cast<uint64_t>(weight.getOffset())};
  if (auto paths = weight.getRankPaths()) {
    if (rank < 0 || rank >= static_cast<int64_t>(paths->size()))
      return badInput(fmt::format("weight {}: there is no file for rank {}", weight.getName().str(), rank));
    place = {llvm::cast<mlir::StringAttr>((*paths)[static_cast<unsigned>(rank)]).str(),
             static_cast<uint64_t>((*weight.getRankOffsets())[static_cast<size_t>(rank)])};
  }
  return loadSpan(weight, place, static_cast<uint64_t>(weight.getLength()), dtype(weight.getY()),
                  Shape(weight.shapeInFile()));
}

Result<Tensor> WeightFiles::loadSpan(nn::WeightOp weight, const Place &place, uint64_t length, DType type,
                                     const Shape &shape) {
  const auto &[path, offset] = place;
  auto fail = [&](const std::string &reason) {
    return badInput(fmt::format("weight {}: {}", weight.getName().str(), reason));
  };
  auto file = open(path);
  if (!file)
    return Error{file.error().kind, fail(file.error().message).message};
  auto bytes = (*file)->bytes();
  if (offset > bytes.size() || length > bytes.size() - offset)
    return fail(fmt::format("needs {} bytes at offset {} of {}, which has {}", length, offset,
                            (*file)->path(), bytes.size()));
  void *data = const_cast<std::byte *>(bytes.data() + offset);
  if (type == DType::I4 || type == DType::U4) {
    Tensor &tensor = unpacked[{path, offset, type, elementCount(shape)}];
    if (!tensor.data())
      tensor = unpackHalves(type, shape, static_cast<const uint8_t *>(data));
    return tensor.reshaped(shape);
  }
  Tensor mapped = Tensor::wrap(type, shape, data, *file);
  if (mapped.bytes() > length)
    return fail(fmt::format("its type needs {} bytes, not {}", mapped.bytes(), length));
  if (reinterpret_cast<uintptr_t>(data) % byteSize(type) != 0)
    return mapped.clone();
  return mapped;
}

} // namespace fusion
