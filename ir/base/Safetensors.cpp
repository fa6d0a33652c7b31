#include "ir/base/Safetensors.h"

#include "ir/base/MappedFile.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace fusion {

namespace {

using Json = nlohmann::json;

/// What the reference implementation allows.
constexpr uint64_t longestHeader = 100'000'000;

struct TypeName {
  std::string_view name;
  DType type;
};
constexpr std::array<TypeName, 15> typeNames{{
    {"BOOL", DType::Bool},
    {"I8", DType::I8},
    {"U8", DType::U8},
    {"I16", DType::I16},
    {"U16", DType::U16},
    {"I32", DType::I32},
    {"U32", DType::U32},
    {"I64", DType::I64},
    {"U64", DType::U64},
    {"F8_E4M3", DType::F8E4M3},
    {"F8_E5M2", DType::F8E5M2},
    {"F16", DType::F16},
    {"BF16", DType::BF16},
    {"F32", DType::F32},
    {"F64", DType::F64},
}};

struct Entry {
  std::string name;
  DType type;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

/// Looks for a key that appears twice in the outermost object. A callback of the parser would see them too,
/// but makes it look through all of an object at the end of each member.
class RepeatedKey : public nlohmann::json_sax<Json> {
public:
  std::string found;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t &) override { return true; }
  bool string(string_t &) override { return true; }
  bool binary(binary_t &) override { return true; }
  bool start_object(size_t) override { return ++depth, true; }
  bool end_object() override { return --depth, true; }
  bool start_array(size_t) override { return ++depth, true; }
  bool end_array() override { return --depth, true; }
  bool key(string_t &name) override {
    if (depth == 1 && !names.insert(name).second)
      found = name;
    return true;
  }
  bool parse_error(size_t, const std::string &, const nlohmann::detail::exception &) override {
    return false;
  }

private:
  int depth = 0;
  std::set<std::string> names;
};

/// Parses JSON without throwing.
Result<Json> parseHeader(std::string_view text) {
  RepeatedKey repeated;
  if (!Json::sax_parse(text.begin(), text.end(), &repeated))
    return badInput("the header is not a JSON object");
  const Json header = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object())
    return badInput("the header is not a JSON object");
  if (!repeated.found.empty())
    return badInput(fmt::format("tensor '{}' is there twice", repeated.found));
  return header;
}

/// Reads one tensor's description; checks everything that needs no other tensor.
Result<Entry> parseEntry(const std::string &name, const Json &fields, uint64_t dataSize) {
  auto wrong = [&](std::string_view reason) {
    return badInput(fmt::format("tensor '{}': {}", name, reason));
  };
  if (!fields.is_object())
    return wrong("its description is not a JSON object");
  Entry entry;
  entry.name = name;

  auto typeField = fields.find("dtype");
  if (typeField == fields.end() || !typeField->is_string())
    return wrong("no dtype");
  std::string typeText = typeField->get<std::string>();
  auto known = std::find_if(typeNames.begin(), typeNames.end(),
                            [&](const TypeName &candidate) { return candidate.name == typeText; });
  if (known == typeNames.end())
    return wrong(fmt::format("dtype '{}' is not supported", typeText));
  entry.type = known->type;

  auto shapeField = fields.find("shape");
  if (shapeField == fields.end() || !shapeField->is_array())
    return wrong("no shape");
  uint64_t bytes = byteSize(entry.type);
  bool tooLarge = false;
  for (const Json &dim : *shapeField) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      return wrong("a dim of its shape is not a non-negative integer");
    entry.shape.push_back(static_cast<int64_t>(dim.get<uint64_t>()));
    tooLarge |= __builtin_mul_overflow(bytes, dim.get<uint64_t>(), &bytes);
  }

  auto offsets = fields.find("data_offsets");
  if (offsets == fields.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned())
    return wrong("data_offsets is not a pair of non-negative integers");
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > dataSize)
    return wrong(fmt::format("its data [{}, {}) is outside of the file, which holds {} bytes of data",
                             entry.begin, entry.end, dataSize));
  if (tooLarge || bytes != entry.end - entry.begin)
    return wrong(fmt::format("{} of {} does not fit its {} bytes of data", shapeString(entry.shape), typeText,
                             entry.end - entry.begin));
  return entry;
}

/// The tensors must tile the data: no overlap, no gap, nothing left over.
Status checkLayout(std::vector<Entry> &entries, uint64_t dataSize) {
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t reached = 0;
  for (const Entry &entry : entries) {
    if (entry.begin < reached)
      return badInput(fmt::format("tensor '{}' overlaps another one", entry.name));
    if (entry.begin > reached)
      return badInput(
          fmt::format("{} bytes before tensor '{}' belong to no tensor", entry.begin - reached, entry.name));
    reached = entry.end;
  }
  if (reached != dataSize)
    return badInput(fmt::format("{} bytes at the end belong to no tensor", dataSize - reached));
  return {};
}

Tensor makeTensor(const Entry &entry, const std::byte *data, const std::shared_ptr<MappedFile> &file) {
  void *address = const_cast<std::byte *>(data + entry.begin);
  Tensor mapped = Tensor::wrap(entry.type, entry.shape, address, file);
  // The format does not promise alignment; a misaligned tensor gets memory of its own.
  if (reinterpret_cast<uintptr_t>(address) % byteSize(entry.type) != 0)
    return mapped.clone();
  return mapped;
}

Result<NamedTensors> readMapped(const std::shared_ptr<MappedFile> &file) {
  std::span<const std::byte> bytes = file->bytes();
  uint64_t headerSize = 0;
  if (bytes.size() < sizeof(headerSize))
    return badInput("too short for a safetensors file");
  std::memcpy(&headerSize, bytes.data(), sizeof(headerSize));
  uint64_t rest = bytes.size() - sizeof(headerSize);
  if (headerSize > rest || headerSize > longestHeader)
    return badInput(
        fmt::format("truncated, or not a safetensors file: the header would have {} bytes", headerSize));
  const std::byte *headerBytes = bytes.data() + sizeof(headerSize);
  Result<Json> header =
      parseHeader({reinterpret_cast<const char *>(headerBytes), static_cast<size_t>(headerSize)});
  if (!header)
    return header.error();

  uint64_t dataSize = rest - headerSize;
  std::vector<Entry> entries;
  for (const auto &[name, fields] : header->items()) {
    if (name == "__metadata__")
      continue;
    Result<Entry> entry = parseEntry(name, fields, dataSize);
    if (!entry)
      return entry.error();
    entries.push_back(std::move(*entry));
  }
  if (Status layout = checkLayout(entries, dataSize); !layout)
    return layout.error();
  NamedTensors tensors;
  for (const Entry &entry : entries)
    tensors.emplace(entry.name, makeTensor(entry, headerBytes + headerSize, file));
  return tensors;
}

} // namespace

Result<NamedTensors> readSafetensors(const std::string &path) {
  Result<std::shared_ptr<MappedFile>> file = MappedFile::open(path);
  if (!file)
    return file.error();
  Result<NamedTensors> tensors = readMapped(*file);
  if (!tensors)
    return Error{tensors.error().kind, fmt::format("{}: {}", path, tensors.error().message)};
  return tensors;
}

Status writeSafetensors(const std::string &path, const NamedTensors &tensors) {
  // Widest elements first keeps every tensor aligned to its element size.
  NamedTensors dense;
  for (const auto &[name, tensor] : tensors)
    dense[name] = tensor.device().kind == Device::Kind::Host ? tensor.dense() : tensor;
  std::vector<NamedTensors::const_pointer> order;
  for (const auto &entry : dense)
    order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](auto a, auto b) {
    size_t left = byteSize(a->second.type()), right = byteSize(b->second.type());
    return left != right ? left > right : a->first < b->first;
  });

  Json header = Json::object();
  std::vector<std::string_view> parts(2);
  uint64_t offset = 0;
  for (const auto *entry : order) {
    const Tensor &tensor = entry->second;
    if (tensor.device().kind != Device::Kind::Host)
      return badInput(fmt::format("{}: tensor '{}' is not in host memory", path, entry->first));
    auto known = std::find_if(typeNames.begin(), typeNames.end(),
                              [&](const TypeName &candidate) { return candidate.type == tensor.type(); });
    if (known == typeNames.end() || entry->first == "__metadata__")
      return badInput(fmt::format("{}: a safetensors file cannot hold tensor '{}' of {}", path, entry->first,
                                  name(tensor.type())));
    uint64_t end = offset + tensor.bytes();
    header[entry->first] = {
        {"dtype", known->name}, {"shape", tensor.shape()}, {"data_offsets", {offset, end}}};
    parts.emplace_back(static_cast<const char *>(tensor.data()), tensor.bytes());
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::type_error &) { // the one thing that dump() refuses
    return badInput(fmt::format("{}: the name of a tensor is not valid UTF-8", path));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t headerSize = text.size();
  parts[0] = {reinterpret_cast<const char *>(&headerSize), sizeof(headerSize)};
  parts[1] = text;
  return writeFileAtomically(path, parts);
}

} // namespace fusion
