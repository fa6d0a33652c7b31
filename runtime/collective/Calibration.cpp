#include "runtime/collective/Calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace fusion {
namespace {

/// Bytes a rank: from what one hop takes to what the wire takes.
constexpr std::array<size_t, 6> sizes = {32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20};
constexpr size_t leastOfLibrary =
    2 << 20; ///< below, the host cannot queue its calls fast enough to time them
/// So much slower than another, an algorithm is not tried at larger sizes.
constexpr double hopeless = 1.5;

/// The largest size up to which `a` is at most as slow as `b`, given that it was so for smaller ones.
size_t crossing(std::span<const CollectiveTimes> times, double CollectiveTimes::*a,
                double CollectiveTimes::*b, size_t beyond) {
  const CollectiveTimes *before = nullptr;
  for (const CollectiveTimes &one : times) {
    if (one.*a < 0 || one.*b < 0)
      continue;
    if (one.*a > one.*b) {
      if (!before)
        return one.bytes / 2;
      const double from = std::log(before->*b / before->*a), to = std::log(one.*a / one.*b);
      const double low = std::log2(before->bytes), high = std::log2(one.bytes);
      return static_cast<size_t>(std::exp2(low + (high - low) * from / (from + to)));
    }
    before = &one;
  }
  return before ? std::max(before->bytes, beyond) : beyond;
}

/// How what a rank says of a time begins; else it is why there is none.
constexpr std::string_view isTime = "us ";

Status keep(double &place, const std::vector<std::string> &told) {
  for (size_t rank = 0; rank < told.size(); ++rank) {
    if (!told[rank].starts_with(isTime))
      return environment(fmt::format("rank {}: {}", rank, told[rank]));
    const double time = std::atof(told[rank].c_str() + isTime.size());
    if (time == 0)
      return environment(fmt::format("the clock of rank {}'s GPU stands still", rank));
    if (time < 0) {
      place = -1;
      return {};
    }
    place = std::max(place, time);
  }
  return {};
}

/// What all ranks say of one algorithm at one size, or why one of them could not tell.
Status measure(Rendezvous &host, CollectiveTimer &timer, const TimedCollective &collective, size_t bytes,
               double &place, bool &isGroupLost) {
  auto time = timer.microseconds(collective, bytes);
  auto told = host.gather(time ? fmt::format("{}{}", isTime, time->value_or(-1)) : time.error().message);
  isGroupLost = !told;
  return told ? keep(place, *told) : Status(told.error());
}

std::string encoded(const AlgorithmLimits &limits) {
  return fmt::format("{} {} {}", limits.oneShot, limits.twoShot, limits.oneShotOfGatheredRows);
}

std::optional<AlgorithmLimits> decoded(const std::string &text) {
  AlgorithmLimits limits;
  if (std::sscanf(text.c_str(), "%zu %zu %zu", &limits.oneShot, &limits.twoShot,
                  &limits.oneShotOfGatheredRows) != 3)
    return std::nullopt;
  return limits;
}

} // namespace

AlgorithmLimits limitsOf(std::span<const CollectiveTimes> times, const AlgorithmLimits &table) {
  AlgorithmLimits limits;
  limits.oneShot = crossing(times, &CollectiveTimes::oneShot, &CollectiveTimes::twoShot, table.oneShot);
  limits.oneShotOfGatheredRows =
      crossing(times, &CollectiveTimes::oneShot, &CollectiveTimes::gatheredRows, table.oneShotOfGatheredRows);
  limits.twoShot = crossing(times, &CollectiveTimes::twoShot, &CollectiveTimes::library, table.twoShot);
  return limits;
}

Result<Calibration> calibrate(Rendezvous &host, KernelCache &cache, const std::string &key,
                              CollectiveTimer &timer, const AlgorithmLimits &table) {
  auto known = host.gather(host.rank() == 0 ? cache.get(key).value_or("") : "");
  if (!known)
    return known.error();
  if (auto limits = decoded(known->front()))
    return Calibration{*limits, "measured before"};

  Status ready = timer.prepare(sizes.back());
  auto problems = host.gather(ready ? "" : ready.error().message);
  if (!problems)
    return problems.error();
  for (size_t rank = 0; rank < problems->size(); ++rank)
    if (!(*problems)[rank].empty())
      return Calibration{table, fmt::format("not measured: rank {}: {}", rank, (*problems)[rank])};

  std::vector<CollectiveTimes> times;
  bool triesOneShot = true;
  for (size_t bytes : sizes) {
    CollectiveTimes &one = times.emplace_back(CollectiveTimes{bytes});
    auto time = [&](CollectiveAlgorithm algorithm, bool gathersRows,
                    double &place) -> Result<std::optional<Calibration>> {
      bool isGroupLost = false;
      Status status = measure(host, timer, {algorithm, gathersRows}, bytes, place, isGroupLost);
      if (isGroupLost)
        return status.error();
      return status ? std::optional<Calibration>()
                    : Calibration{table, "not measured: " + status.error().message};
    };
    struct Wanted {
      CollectiveAlgorithm algorithm;
      bool gathersRows;
      double &place;
      bool isWanted;
    };
    for (const Wanted &wanted :
         {Wanted{CollectiveAlgorithm::OneShot, false, one.oneShot, triesOneShot},
          {CollectiveAlgorithm::TwoShot, false, one.twoShot, true},
          {CollectiveAlgorithm::TwoShot, true, one.gatheredRows, true},
          {CollectiveAlgorithm::Library, false, one.library, bytes >= leastOfLibrary}}) {
      if (!wanted.isWanted)
        continue;
      auto stopped = time(wanted.algorithm, wanted.gathersRows, wanted.place);
      if (!stopped)
        return stopped.error();
      if (*stopped)
        return std::move(**stopped);
    }
    triesOneShot &= one.oneShot <= hopeless * one.twoShot;
  }
  Calibration result{limitsOf(times, table), "measured"};
  if (host.rank() == 0)
    cache.put(key, encoded(result.limits));
  return result;
}

} // namespace fusion
