// A stable content hash: the same text gives the same name on every machine and in every version.
#pragma once

#include <string>
#include <string_view>

namespace fusion {

/// 128 bits (MurmurHash3 x64) as 32 lower-case hexadecimal digits. Not cryptographic.
std::string contentHash(std::string_view content);

} // namespace fusion
