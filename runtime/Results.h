// Where the results of a run are when it returns.
#pragma once

#include <cstdint>

namespace fusion {

enum class Results : uint8_t {
  Host,   ///< on the host, but for caches that are extended in place
  Device, ///< where the program runs; fetch() copies what is wanted
  Queued, ///< the same before they are computed: what takes them, a run or fetch(), comes after
};

} // namespace fusion
