// The wire format of protocol buffers, as far as it takes to copy a message without some of its fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fusion::onnx {

/// Reads the fields of one message; every read is checked against its end.
class WireReader {
public:
  explicit WireReader(std::string_view bytes) : bytes(bytes) {}

  struct Field {
    uint32_t number = 0;
    uint32_t wireType = 0;
    uint64_t integer = 0;      ///< of a varint
    std::string_view payload;  ///< of a length-delimited field
    std::string_view encoding; ///< tag and all
  };
  /// Nothing at the end and at the first damaged field: damaged() tells which.
  std::optional<Field> next();
  bool damaged() const { return broken; }

private:
  bool readVarint(uint64_t &value);

  std::string_view bytes;
  size_t position = 0;
  bool broken = false;
};

void appendVarint(std::string &out, uint64_t value);
void appendIntegerField(std::string &out, uint32_t number, uint64_t value);
void appendBytesField(std::string &out, uint32_t number, std::string_view payload);

} // namespace fusion::onnx
