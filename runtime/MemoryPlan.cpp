#include "runtime/MemoryPlan.h"

#include <algorithm>
#include <numeric>

namespace fusion {

MemoryPlan planMemory(std::span<const Lifetime> lifetimes) {
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size(), 0);
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return lifetimes[a].bytes != lifetimes[b].bytes ? lifetimes[a].bytes > lifetimes[b].bytes : a < b;
  });

  std::vector<size_t> placed; // sorted by offset
  for (size_t index : order) {
    const Lifetime &wanted = lifetimes[index];
    size_t size = alignedSize(wanted.bytes);
    if (size == 0)
      continue;
    size_t end = 0, best = SIZE_MAX, bestGap = SIZE_MAX;
    for (size_t other : placed) {
      const Lifetime &taken = lifetimes[other];
      if (taken.last < wanted.first || wanted.last < taken.first)
        continue;
      size_t begin = plan.offsets[other];
      if (begin > end && begin - end >= size && begin - end < bestGap) {
        best = end;
        bestGap = begin - end;
      }
      end = std::max(end, begin + alignedSize(taken.bytes));
    }
    plan.offsets[index] = best == SIZE_MAX ? end : best;
    plan.total = std::max(plan.total, plan.offsets[index] + size);
    auto position =
        std::upper_bound(placed.begin(), placed.end(), plan.offsets[index],
                         [&](size_t offset, size_t other) { return offset < plan.offsets[other]; });
    placed.insert(position, index);
  }
  return plan;
}

} // namespace fusion
