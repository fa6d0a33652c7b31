#include "passes/fuse/Profit.h"

#include "llvm/Support/FormatVariadic.h"

namespace fusion {

double scoreOfSaving(double microseconds) {
  constexpr double bytesPerMicrosecond = 4e6; // what Fuse.cpp counts for a launch is half a microsecond
  return microseconds * bytesPerMicrosecond;
}

double noiseOf(double microseconds) { return 0.03 * microseconds; }

std::optional<std::string> whySlower(const ProfitOracle::Times &times, const SymbolValues &sizes) {
  if (times.fused <= times.unfused + noiseOf(times.unfused))
    return std::nullopt;
  std::string reason =
      llvm::formatv("measures slower: {0:F2} µs fused, {1:F2} µs unfused", times.fused, times.unfused).str();
  const char *separator = " at ";
  for (const auto &[symbol, size] : sizes) {
    reason += separator + symbol + " = " + std::to_string(size);
    separator = ", ";
  }
  return reason;
}

} // namespace fusion
