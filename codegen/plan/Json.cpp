#include "codegen/plan/Json.h"

#include <array>
#include <cstdint>

namespace fusion {

static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string encodeBase64(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j)
      word = word << 8 | (j < count ? std::to_integer<uint32_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j)
      text.push_back(j <= count ? digits[word >> (18 - 6 * j) & 63] : '=');
  }
  return text;
}

Result<std::string> decodeBase64(std::string_view text) {
  static const std::array<int8_t, 256> values = [] {
    std::array<int8_t, 256> table;
    table.fill(-1);
    for (size_t i = 0; i < digits.size(); ++i)
      table[static_cast<uint8_t>(digits[i])] = static_cast<int8_t>(i);
    return table;
  }();
  if (text.size() % 4 != 0)
    return badInput("base64 text whose length is not a multiple of 4");
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    bool last = i + 4 == text.size();
    size_t padding = last ? (text[i + 3] == '=') + (text[i + 2] == '=' && text[i + 3] == '=') : 0;
    uint32_t word = 0;
    for (size_t j = 0; j < 4; ++j) {
      int value = j >= 4 - padding ? 0 : values[static_cast<uint8_t>(text[i + j])];
      if (value < 0)
        return badInput("base64 text with a character outside its alphabet");
      word = word << 6 | static_cast<uint32_t>(value);
    }
    for (size_t j = 0; j < 3 - padding; ++j)
      bytes.push_back(static_cast<char>(word >> (16 - 8 * j) & 255));
  }
  return bytes;
}

const nlohmann::json &jsonArray(const nlohmann::json &object, const char *key) {
  auto found = object.find(key);
  if (found == object.end())
    throw JsonProblem{std::string("field '") + key + "' is missing"};
  if (!found->is_array())
    throw JsonProblem{std::string("field '") + key + "' is not a list"};
  return *found;
}

} // namespace fusion
