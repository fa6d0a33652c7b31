// Random choices that are the same for the same seed on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace fusion::fuzz {

/// A splitmix64 of our own: the standard's distributions differ between libraries.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int below(size_t count) { return static_cast<int>(next() % count); }
  bool chance(int percent) { return below(100) < percent; }
  std::string of(std::initializer_list<const char *> all) { return *(all.begin() + below(all.size())); }

private:
  uint64_t state;
};

} // namespace fusion::fuzz
