// Sizes and times for people.
#pragma once

#include <cstdint>
#include <string>

namespace fusion {

/// `37 bytes`, `1.5 KiB`, `416 KiB`, `3.84 MiB`: three digits at least where they are known.
std::string bytesText(int64_t bytes);

/// `3.12 µs`, `1.5 ms`
std::string microsecondsText(double microseconds);

} // namespace fusion
