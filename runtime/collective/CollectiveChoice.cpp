#include "runtime/collective/CollectiveChoice.h"

#include "runtime/cuda/Library.h"

#include <fmt/format.h>

#include <algorithm>

namespace fusion {

/// Of one round's area. Every rank has three.
static constexpr size_t mostRoundBytes = size_t(512) << 20;

// H200, NVLink, a chain of all-reduce, add and norm over rows of 16 KiB (benchmarks/notes-collectives.md): of
// two ranks each sends as much with either algorithm; with more ranks, what each sends by one-shot grows with
// their number. The limits of three ranks, and of more than four, are computed from those of two and four.
AlgorithmLimits defaultAlgorithmLimits(int ranks) {
  const size_t oneShot = ranks <= 2 ? 32 << 20 : ranks == 3 ? 384 << 10 : ranks == 4 ? 192 << 10 : 64 << 10;
  return {oneShot, size_t(256) << 20, std::min(oneShot, size_t(1536) << 10)};
}

std::string_view algorithmName(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
  case CollectiveAlgorithm::OneShot:
    return "one-shot";
  case CollectiveAlgorithm::TwoShot:
    return "two-shot";
  case CollectiveAlgorithm::Library:
    return "library";
  }
  return "";
}

Result<std::optional<CollectiveAlgorithm>> forcedAlgorithm() {
  const std::string text = environmentVariable("FUSION_COLLECTIVE");
  if (text.empty())
    return std::optional<CollectiveAlgorithm>();
  for (CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::OneShot, CollectiveAlgorithm::TwoShot, CollectiveAlgorithm::Library})
    if (text == algorithmName(algorithm))
      return std::optional(algorithm);
  return badInput(fmt::format("FUSION_COLLECTIVE is one-shot, two-shot or library, not '{}'", text));
}

CollectiveAlgorithm chooseAlgorithm(const AlgorithmLimits &limits, std::optional<CollectiveAlgorithm> wanted,
                                    size_t messageBytes, std::span<const CollectiveCandidate> candidates) {
  auto has = [&](CollectiveAlgorithm algorithm) {
    return std::any_of(candidates.begin(), candidates.end(), [&](const CollectiveCandidate &candidate) {
      return candidate.algorithm == algorithm &&
             (algorithm == CollectiveAlgorithm::Library || candidate.roundBytes <= mostRoundBytes);
    });
  };
  if (wanted && has(*wanted))
    return *wanted;
  const bool gathersRows =
      std::any_of(candidates.begin(), candidates.end(),
                  [](const CollectiveCandidate &candidate) { return candidate.gathersRows; });
  if (messageBytes <= (gathersRows ? limits.oneShotOfGatheredRows : limits.oneShot) &&
      has(CollectiveAlgorithm::OneShot))
    return CollectiveAlgorithm::OneShot;
  if (messageBytes <= limits.twoShot && has(CollectiveAlgorithm::TwoShot))
    return CollectiveAlgorithm::TwoShot;
  // The last candidate is the one for the larger messages.
  return has(CollectiveAlgorithm::Library) ? CollectiveAlgorithm::Library : candidates.back().algorithm;
}

} // namespace fusion
