// Secrets between processes of one user: random bytes, SHA-256, and codes that only who has a key can make.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fusion {

/// From the system's generator. Empty if it has none.
std::string randomBytes(size_t count);

/// SHA-256 (FIPS 180-4), 32 bytes.
std::string sha256(std::string_view text);

/// HMAC-SHA256 (RFC 2104), 32 bytes. For messages of strangers; a key may have any length.
std::string messageCode(std::string_view key, std::string_view message);

/// SipHash-2-4 with 128 bits: a code for much data, about ten times as fast as SHA-256. `key` has 16 bytes.
std::string fastCode(std::string_view key, std::string_view message);

/// In a time that does not say where they differ.
bool sameCode(std::string_view a, std::string_view b);

std::string toHex(std::string_view bytes);

} // namespace fusion
