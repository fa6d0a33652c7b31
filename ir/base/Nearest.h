// Which known name an unknown one was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fusion {

/// "; did you mean 'NAME'?" with the known name that is nearest to `word`, or nothing if none is near.
std::string didYouMean(std::string_view word, std::span<const std::string> known);

/// The same for the keys of a map.
template <class Map>
  requires requires(const Map &map) { map.begin()->first; }
std::string didYouMean(std::string_view word, const Map &map) {
  std::vector<std::string> known;
  for (const auto &entry : map)
    known.emplace_back(entry.first);
  return didYouMean(word, std::span<const std::string>(known));
}

} // namespace fusion
