#include "ir/base/Hash.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>

namespace fusion {

namespace {
constexpr uint64_t firstFactor = 0x87c37b91114253d5ull;
constexpr uint64_t secondFactor = 0x4cf5ad432745937full;

uint64_t mixFirst(uint64_t word) { return std::rotl(word * firstFactor, 31) * secondFactor; }
uint64_t mixSecond(uint64_t word) { return std::rotl(word * secondFactor, 33) * firstFactor; }

uint64_t finish(uint64_t word) {
  word = (word ^ (word >> 33)) * 0xff51afd7ed558ccdull;
  word = (word ^ (word >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return word ^ (word >> 33);
}
} // namespace

std::string contentHash(std::string_view content) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t first = 0, second = 0;
  size_t length = content.size();
  size_t whole = length / 16 * 16;
  for (size_t at = 0; at < whole; at += 16) {
    uint64_t words[2];
    std::memcpy(words, content.data() + at, sizeof(words));
    first = (std::rotl(first ^ mixFirst(words[0]), 27) + second) * 5 + 0x52dce729;
    second = (std::rotl(second ^ mixSecond(words[1]), 31) + first) * 5 + 0x38495ab5;
  }
  if (whole != length) {
    uint64_t words[2] = {0, 0};
    std::memcpy(words, content.data() + whole, length - whole);
    second ^= mixSecond(words[1]);
    first ^= mixFirst(words[0]);
  }
  first ^= length;
  second ^= length;
  first += second;
  second += first;
  first = finish(first);
  second = finish(second);
  first += second;
  second += first;
  return fmt::format("{:016x}{:016x}", first, second);
}

} // namespace fusion
