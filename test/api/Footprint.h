// What a process holds: flat where programs come and go.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <malloc.h>

namespace fusion::test {

struct Footprint {
  size_t heap = 0, descriptors = 0, threads = 0, mappings = 0;

  static Footprint now() {
    const auto entries = [](const char *folder) {
      const std::filesystem::directory_iterator all(folder);
      return static_cast<size_t>(std::distance(begin(all), end(all)));
    };
    const auto heap = mallinfo2();
    return {heap.uordblks + heap.hblkhd, entries("/proc/self/fd"), entries("/proc/self/task"),
            entries("/proc/self/map_files")};
  }
};

/// A sanitizer's allocator keeps what is freed.
constexpr bool heapIsKnown =
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    false &&
#endif
#endif
    true;

/// How often to repeat: as the suite does, or as often as the environment says.
inline int repeats(const char *variable, int usual) {
  const char *text = std::getenv(variable);
  return text ? std::atoi(text) : usual;
}

} // namespace fusion::test
