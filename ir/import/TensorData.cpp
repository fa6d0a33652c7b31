#include "ir/import/TensorData.h"

#include "ir/base/Confine.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>

namespace fusion::onnx {

namespace {

std::string label(const proto::TensorProto &tensor) {
  return tensor.name().empty() ? std::string("constant") : fmt::format("initializer '{}'", tensor.name());
}

/// Bytes in a file: i4 and ui4 two to a byte.
uint64_t packedBytes(DType type, int64_t elements) {
  auto count = static_cast<uint64_t>(elements);
  if (type == DType::I4 || type == DType::U4)
    return (count + 1) / 2;
  return count * byteSize(type);
}

Tensor unpackNibbles(DType type, const Shape &shape, const uint8_t *packed) {
  Tensor tensor = Tensor::uninitialized(type, shape);
  auto *out = tensor.as<uint8_t>();
  for (int64_t i = 0; i < tensor.size(); ++i) {
    uint8_t nibble = (packed[i / 2] >> (i % 2 * 4)) & 15;
    out[i] = type == DType::I4 && nibble > 7 ? nibble | 0xf0 : nibble;
  }
  return tensor;
}

Tensor fromBytes(const TensorInfo &info, const void *bytes) {
  if (info.type == DType::I4 || info.type == DType::U4)
    return unpackNibbles(info.type, info.shape, static_cast<const uint8_t *>(bytes));
  Tensor tensor = Tensor::uninitialized(info.type, info.shape);
  if (tensor.bytes())
    std::memcpy(tensor.data(), bytes, tensor.bytes());
  return tensor;
}

template <class To, class Field>
void copyValues(const Field &field, Tensor &tensor) {
  auto *out = tensor.as<To>();
  for (int64_t i = 0; i < tensor.size(); ++i)
    out[i] = static_cast<To>(field.Get(static_cast<int>(i)));
}

/// Number of values that the field for this type must have.
int64_t fieldSize(const proto::TensorProto &tensor, DType type) {
  switch (type) {
  case DType::F32:
    return tensor.float_data_size();
  case DType::F64:
    return tensor.double_data_size();
  case DType::I64:
    return tensor.int64_data_size();
  case DType::U32:
  case DType::U64:
    return tensor.uint64_data_size();
  default:
    return tensor.int32_data_size();
  }
}

Tensor fromFields(const proto::TensorProto &proto, const TensorInfo &info) {
  if (info.type == DType::I4 || info.type == DType::U4) {
    std::string packed;
    for (int32_t pair : proto.int32_data())
      packed.push_back(static_cast<char>(pair));
    return unpackNibbles(info.type, info.shape, reinterpret_cast<const uint8_t *>(packed.data()));
  }
  Tensor tensor = Tensor::uninitialized(info.type, info.shape);
  switch (info.type) {
  case DType::F32:
    copyValues<float>(proto.float_data(), tensor);
    break;
  case DType::F64:
    copyValues<double>(proto.double_data(), tensor);
    break;
  case DType::I64:
    copyValues<int64_t>(proto.int64_data(), tensor);
    break;
  case DType::U64:
    copyValues<uint64_t>(proto.uint64_data(), tensor);
    break;
  case DType::U32:
    copyValues<uint32_t>(proto.uint64_data(), tensor);
    break;
  case DType::I32:
    copyValues<int32_t>(proto.int32_data(), tensor);
    break;
  default:
    if (byteSize(info.type) == 2)
      copyValues<uint16_t>(proto.int32_data(), tensor);
    else
      copyValues<uint8_t>(proto.int32_data(), tensor);
  }
  return tensor;
}

std::optional<uint64_t> parseNumber(const std::string &text) {
  uint64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

} // namespace

Result<DType> elementTypeOf(int32_t dataType) {
  switch (dataType) {
  case proto::TensorProto::FLOAT:
    return DType::F32;
  case proto::TensorProto::UINT8:
    return DType::U8;
  case proto::TensorProto::INT8:
    return DType::I8;
  case proto::TensorProto::UINT16:
    return DType::U16;
  case proto::TensorProto::INT16:
    return DType::I16;
  case proto::TensorProto::INT32:
    return DType::I32;
  case proto::TensorProto::INT64:
    return DType::I64;
  case proto::TensorProto::BOOL:
    return DType::Bool;
  case proto::TensorProto::FLOAT16:
    return DType::F16;
  case proto::TensorProto::DOUBLE:
    return DType::F64;
  case proto::TensorProto::UINT32:
    return DType::U32;
  case proto::TensorProto::UINT64:
    return DType::U64;
  case proto::TensorProto::BFLOAT16:
    return DType::BF16;
  case proto::TensorProto::FLOAT8E4M3FN:
    return DType::F8E4M3;
  case proto::TensorProto::FLOAT8E5M2:
    return DType::F8E5M2;
  case proto::TensorProto::UINT4:
    return DType::U4;
  case proto::TensorProto::INT4:
    return DType::I4;
  default:
    break;
  }
  std::string name =
      proto::TensorProto::DataType_IsValid(dataType)
          ? proto::TensorProto::DataType_Name(static_cast<proto::TensorProto::DataType>(dataType))
          : fmt::format("number {}", dataType);
  return badInput(fmt::format("element type {} is not supported", name));
}

TensorStore::TensorStore(const ModelFile &model, std::string modelPath, bool trustsPaths)
    : model(model), trustsPaths(trustsPaths) {
  std::filesystem::path path(std::move(modelPath));
  folder = path.parent_path().string();
  name = path.filename().string();
}

Result<TensorInfo> TensorStore::describe(const proto::TensorProto &tensor) {
  TensorInfo info;
  if (tensor.data_type() == proto::TensorProto::FLOAT4E2M1) {
    info.type = DType::U4;
    info.code = FloatCode::E2M1;
  } else if (tensor.data_type() == proto::TensorProto::FLOAT8E8M0) {
    info.type = DType::U8;
    info.code = FloatCode::E8M0;
  } else if (auto type = elementTypeOf(tensor.data_type())) {
    info.type = *type;
  } else {
    return badInput(label(tensor) + ": " + type.error().message);
  }
  constexpr int64_t mostElements = int64_t(1) << 46;
  int64_t elements = 1;
  for (int64_t dim : tensor.dims()) {
    if (dim < 0 || (dim > 0 && elements > mostElements / dim))
      return badInput(fmt::format("{}: dim {} is out of range", label(tensor), dim));
    elements *= dim;
    info.shape.push_back(dim);
  }
  uint64_t needed = packedBytes(info.type, elements);
  if (tensor.has_segment())
    return badInput(label(tensor) + ": tensors in segments are not supported");
  if (tensor.data_location() == proto::TensorProto::EXTERNAL) {
    auto place = externalPlace(tensor, needed);
    if (!place)
      return badInput(label(tensor) + ": " + place.error().message);
    info.place = *place;
    info.external = true;
  } else if (auto range = rawData(tensor)) {
    if (range->length != needed)
      return badInput(fmt::format("{}: {} bytes of data where its type and dims need {}", label(tensor),
                                  range->length, needed));
    const std::string &file = model.file->isMemory() ? model.file->path() : name;
    info.place = TensorInfo::Place{file, range->offset, range->length};
  } else {
    int64_t expected = info.type == DType::I4 || info.type == DType::U4 ? (elements + 1) / 2 : elements;
    if (int64_t found = fieldSize(tensor, info.type); found != expected)
      return badInput(fmt::format("{}: {} values where its dims need {}", label(tensor), found, expected));
  }
  return info;
}

Result<TensorInfo::Place> TensorStore::externalPlace(const proto::TensorProto &tensor, uint64_t needed) {
  TensorInfo::Place place;
  place.length = needed;
  for (const auto &entry : tensor.external_data()) {
    if (entry.key() == "location") {
      place.path = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      auto value = parseNumber(entry.value());
      if (!value)
        return badInput(fmt::format("external data has the {} '{}'", entry.key(), entry.value()));
      if (entry.key() == "offset")
        place.offset = *value;
      else if (*value != needed)
        return badInput(
            fmt::format("external data of {} bytes where its type and dims need {}", *value, needed));
    }
  }
  std::filesystem::path location(place.path);
  if (place.path.empty() || place.path.find('\0') != std::string::npos)
    return badInput("external data without a location");
  const std::string named = place.path;
  const auto inMemory = model.memory.find(named);
  auto known = sizes.find(named);
  if (inMemory != model.memory.end()) {
    place.path = inMemory->second->path();
    known = sizes.emplace(named, inMemory->second->size()).first;
  } else if (known == sizes.end()) {
    if (Status status = trustsPaths ? Status() : confined(folder, named); !status)
      return badInput("external data " + status.error().message);
    std::error_code error;
    std::filesystem::path full = std::filesystem::path(folder) / location;
    bool regular = std::filesystem::is_regular_file(full, error);
    uint64_t size = regular ? std::filesystem::file_size(full, error) : 0;
    if (!regular || error)
      return badInput(fmt::format("external data file '{}' is missing", full.string()));
    known = sizes.emplace(named, size).first;
  }
  if (place.offset > known->second || needed > known->second - place.offset)
    return badInput(fmt::format("external data file '{}' is too short: {} bytes at {} of {}", named,
                                needed, place.offset, known->second));
  return place;
}

Result<Tensor> TensorStore::load(const proto::TensorProto &tensor, const TensorInfo &info) {
  if (!info.place)
    return fromFields(tensor, info);
  if (!info.external)
    return fromBytes(info, model.file->bytes().data() + info.place->offset);
  auto file = MappedFile::open((std::filesystem::path(folder) / info.place->path).string());
  if (!file)
    return file.error();
  if (info.place->offset + info.place->length > (*file)->bytes().size())
    return badInput(fmt::format("external data file '{}' is too short", info.place->path));
  return fromBytes(info, (*file)->bytes().data() + info.place->offset);
}

} // namespace fusion::onnx
