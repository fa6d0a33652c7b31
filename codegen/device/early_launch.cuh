#pragma once
// When a kernel lets the next one start: by default once it has waited for those before it; where its Config
// says `launches_early = true`, before that. Then the next one's blocks, and its loads before it
// waits, come in the shadow of this kernel's own wait, and more than one kernel before it may still run: see
// pdl_wait().

#include "machine.cuh"

template <bool>
struct EarlyLaunch;
template <>
struct EarlyLaunch<true> {
  using type = void;
};

template <class Config, class = void>
constexpr bool launches_early = false;
template <class Config>
constexpr bool launches_early<Config, typename EarlyLaunch<(Config::launches_early, true)>::type> =
    Config::launches_early;

/// At the start of a kernel. `early`: what launch_after_wait() is told too.
template <class Config>
DEVICE void launch_before_wait(bool early = true) {
  if constexpr (launches_early<Config>)
    if (early)
      pdl_launch_dependents();
}
/// After pdl_wait().
template <class Config>
DEVICE void launch_after_wait(bool early = true) {
  if (!launches_early<Config> || !early)
    pdl_launch_dependents();
}
