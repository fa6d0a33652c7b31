#include "runtime/TypicalSizes.h"

#include "ir/base/SoleSymbol.h"

#include <algorithm>
#include <optional>

namespace fusion {
namespace {

constexpr int64_t mostPositions = 1024;

std::optional<int64_t> valueOf(const Dim &dim, const SymbolValues &sizes) {
  const Result<int64_t> value = dim.evaluate(sizes);
  return value ? std::optional(*value) : std::nullopt;
}

/// The positions that caches hold, by symbol, where they are fewer than is typical.
SymbolValues longerCaches(const ProgramPlan &plan, const SymbolValues &sizes) {
  SymbolValues longer;
  for (const PortPlan &port : plan.inputs)
    for (size_t i = 0; i < port.shape.size() && !port.strides.empty(); ++i) {
      const DimShape &room = plan.buffers[port.buffer].shape;
      const std::optional<std::string> symbol = soleSymbol(port.shape[i]);
      if (!symbol || room.size() != port.shape.size() || room[i] == port.shape[i])
        continue;
      const std::optional<int64_t> held = valueOf(port.shape[i], sizes), capacity = valueOf(room[i], sizes);
      if (!held || !capacity || *held < 1)
        continue;
      const int64_t typical = std::min(*capacity / 2, mostPositions);
      if (*held < typical)
        longer.try_emplace(*symbol, typical);
    }
  return longer;
}

bool resultsFit(const ProgramPlan &plan, const SymbolValues &sizes) {
  return std::all_of(plan.outputs.begin(), plan.outputs.end(), [&](const PortPlan &port) {
    const DimShape &room = plan.buffers[port.buffer].shape;
    for (size_t i = 0; i < port.strides.size() && i < room.size(); ++i) {
      const std::optional<int64_t> size = valueOf(port.shape[i], sizes), most = valueOf(room[i], sizes);
      if (!size || !most || *size > *most)
        return false;
    }
    return true;
  });
}

} // namespace

SymbolValues typicalSizes(const ProgramPlan &plan, const SymbolValues &sizes) {
  SymbolValues known = longerCaches(plan, sizes);
  if (known.empty())
    return sizes;
  SymbolValues typical = sizes;
  for (const auto &[symbol, size] : known)
    typical[symbol] = size;
  // What has a name of its own, as a mask's length may, follows; each round settles one at least.
  for (size_t round = 0; round <= plan.equalities.size(); ++round) {
    bool holds = true;
    for (const auto &[left, right, reason] : plan.equalities) {
      const std::optional<int64_t> is = valueOf(left, typical), other = valueOf(right, typical);
      if (is && other && *is == *other)
        continue;
      holds = false;
      auto settle = [&](const Dim &dim, std::optional<int64_t> size) {
        const std::optional<std::string> symbol = soleSymbol(dim);
        if (symbol && size && known.try_emplace(*symbol, *size).second)
          typical[*symbol] = *size;
      };
      settle(left, other);
      settle(right, is);
    }
    if (holds)
      return resultsFit(plan, typical) ? typical : sizes;
  }
  return sizes;
}

} // namespace fusion
