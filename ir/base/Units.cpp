#include "ir/base/Units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace fusion {

/// Three digits, whole numbers in full.
static std::string digits(double value) {
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.')
      text.pop_back();
  }
  return text;
}

std::string bytesText(int64_t bytes) {
  static constexpr std::array units{"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  if (std::abs(value) < 1024)
    return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
  size_t unit = 0;
  // What would be rounded to 1024 of a unit is 1 of the next.
  for (value /= 1024; std::abs(value) >= 1023.5 && unit + 1 < units.size(); value /= 1024)
    ++unit;
  return (value < 0 ? "-" : "") + digits(std::abs(value)) + " " + units[unit];
}

std::string microsecondsText(double microseconds) {
  return microseconds < 1000 ? digits(microseconds) + " µs" : digits(microseconds / 1000) + " ms";
}

} // namespace fusion
