#include "ir/base/Authentication.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sys/random.h>

namespace fusion {

std::string randomBytes(size_t count) {
  std::string bytes(count, 0);
  for (size_t done = 0; done < count;) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return {};
    done += static_cast<size_t>(got);
  }
  return bytes;
}

namespace {

constexpr std::array<uint32_t, 64> roundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Sha256State = std::array<uint32_t, 8>;
constexpr size_t sha256Block = 64;

uint32_t bigEndian(const unsigned char *bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void compress(Sha256State &state, const unsigned char *block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i)
    w[i] = bigEndian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t b = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t sum = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25), choice = (e & f) ^ (~e & g);
    const uint32_t first = h + sum + choice + roundConstants[i] + w[i];
    const uint32_t other = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22),
                   majority = (a & b) ^ (a & c) ^ (b & c);
    h = g, g = f, f = e, e = d + first;
    d = c, c = b, b = a, a = first + other + majority;
  }
  const Sha256State added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i)
    state[i] += added[i];
}

uint64_t littleEndian(std::string_view bytes, size_t at) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

struct SipState {
  uint64_t a, b, c, d;
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
      c += d, d = std::rotl(d, 16) ^ c;
      a += d, d = std::rotl(d, 21) ^ a;
      c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
    }
  }
  void take(uint64_t word) {
    d ^= word;
    rounds(2);
    a ^= word;
  }
  uint64_t result() const { return a ^ b ^ c ^ d; }
};

} // namespace

std::string sha256(std::string_view text) {
  Sha256State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = text.size() / sha256Block * sha256Block;
  const auto *bytes = reinterpret_cast<const unsigned char *>(text.data());
  for (size_t at = 0; at < whole; at += sha256Block)
    compress(state, bytes + at);
  // The rest, a one bit, zeros, the length in bits.
  std::string last(text.substr(whole));
  last.push_back(static_cast<char>(0x80));
  last.resize(last.size() + 8 <= sha256Block ? sha256Block : 2 * sha256Block, 0);
  for (size_t i = 0; i < 8; ++i)
    last[last.size() - 1 - i] = static_cast<char>(uint64_t{text.size()} * 8 >> 8 * i);
  for (size_t at = 0; at < last.size(); at += sha256Block)
    compress(state, reinterpret_cast<const unsigned char *>(last.data()) + at);
  std::string digest;
  for (uint32_t word : state)
    for (int shift = 24; shift >= 0; shift -= 8)
      digest.push_back(static_cast<char>(word >> shift));
  return digest;
}

std::string messageCode(std::string_view key, std::string_view message) {
  std::string block = key.size() > sha256Block ? sha256(key) : std::string(key);
  block.resize(sha256Block, 0);
  std::string inner, outer;
  for (char byte : block) {
    inner.push_back(static_cast<char>(byte ^ 0x36));
    outer.push_back(static_cast<char>(byte ^ 0x5c));
  }
  return sha256(outer + sha256(inner.append(message)));
}

std::string fastCode(std::string_view key, std::string_view message) {
  const uint64_t first = littleEndian(key, 0), second = littleEndian(key, 8);
  SipState state = {first ^ 0x736f6d6570736575ull, second ^ 0x646f72616e646f6dull ^ 0xee,
                    first ^ 0x6c7967656e657261ull, second ^ 0x7465646279746573ull};
  const size_t whole = message.size() / 8 * 8;
  for (size_t at = 0; at < whole; at += 8)
    state.take(littleEndian(message, at));
  uint64_t last = uint64_t{message.size()} << 56;
  for (size_t i = whole; i < message.size(); ++i)
    last |= uint64_t{static_cast<unsigned char>(message[i])} << 8 * (i - whole);
  state.take(last);
  state.c ^= 0xee;
  state.rounds(4);
  uint64_t words[2] = {state.result(), 0};
  state.b ^= 0xdd;
  state.rounds(4);
  words[1] = state.result();
  return {reinterpret_cast<const char *>(words), sizeof words};
}

bool sameCode(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string toHex(std::string_view bytes) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (char byte : bytes) {
    text.push_back(digits[static_cast<unsigned char>(byte) >> 4]);
    text.push_back(digits[static_cast<unsigned char>(byte) & 15]);
  }
  return text;
}

} // namespace fusion
