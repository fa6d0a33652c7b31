// Which algorithm of a collective is the fastest.
#pragma once

#include "runtime/collective/Communicator.h"

#include <optional>

namespace fusion {

/// The largest message, in bytes a rank, for which an algorithm is the fastest; the library's takes what is
/// larger than both.
struct AlgorithmLimits {
  size_t oneShot = 0, twoShot = 0;
  size_t oneShotOfGatheredRows =
      0; ///< instead of `oneShot` where the two-shot algorithm gathers normed rows (gathersRows)
  friend bool operator==(const AlgorithmLimits &, const AlgorithmLimits &) = default;
};

/// For GPUs of one host that nobody has measured.
AlgorithmLimits defaultAlgorithmLimits(int ranks);

/// What FUSION_COLLECTIVE names (one-shot, two-shot, library), for tests and comparisons; an error for
/// anything else.
Result<std::optional<CollectiveAlgorithm>> forcedAlgorithm();

/// The algorithm that `wanted` or the limits ask for if `candidates` has it, else one that it has. Areas of
/// more than some hundred MiB are left to the library.
CollectiveAlgorithm chooseAlgorithm(const AlgorithmLimits &limits, std::optional<CollectiveAlgorithm> wanted,
                                    size_t messageBytes, std::span<const CollectiveCandidate> candidates);

/// "one-shot", "two-shot", "library".
std::string_view algorithmName(CollectiveAlgorithm algorithm);

} // namespace fusion
