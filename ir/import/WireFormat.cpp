#include "ir/import/WireFormat.h"

namespace fusion::onnx {

namespace {
constexpr uint32_t varint = 0, fixed64 = 1, lengthDelimited = 2, fixed32 = 5;
} // namespace

bool WireReader::readVarint(uint64_t &value) {
  value = 0;
  for (int shift = 0; shift < 70 && position < bytes.size(); shift += 7) {
    auto byte = static_cast<uint8_t>(bytes[position++]);
    if (shift < 64)
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      return true;
  }
  return false;
}

std::optional<WireReader::Field> WireReader::next() {
  if (broken || position == bytes.size())
    return std::nullopt;
  size_t start = position;
  broken = true; // until the field has been read in full
  Field field;
  uint64_t tag;
  if (!readVarint(tag) || tag >> 32 || tag < 8)
    return std::nullopt;
  field.number = static_cast<uint32_t>(tag >> 3);
  field.wireType = static_cast<uint32_t>(tag & 7);
  uint64_t length = 0;
  switch (field.wireType) {
  case varint:
    if (!readVarint(field.integer))
      return std::nullopt;
    break;
  case fixed64:
    length = 8;
    break;
  case fixed32:
    length = 4;
    break;
  case lengthDelimited:
    if (!readVarint(length))
      return std::nullopt;
    break;
  default:
    return std::nullopt; // ONNX has no groups
  }
  if (length > bytes.size() - position)
    return std::nullopt;
  if (field.wireType == lengthDelimited)
    field.payload = bytes.substr(position, length);
  position += length;
  field.encoding = bytes.substr(start, position - start);
  broken = false;
  return field;
}

void appendVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void appendIntegerField(std::string &out, uint32_t number, uint64_t value) {
  appendVarint(out, static_cast<uint64_t>(number) << 3 | varint);
  appendVarint(out, value);
}

void appendBytesField(std::string &out, uint32_t number, std::string_view payload) {
  appendVarint(out, static_cast<uint64_t>(number) << 3 | lengthDelimited);
  appendVarint(out, payload.size());
  out.append(payload);
}

} // namespace fusion::onnx
