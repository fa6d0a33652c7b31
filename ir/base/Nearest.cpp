#include "ir/base/Nearest.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace fusion {

static std::string lower(std::string_view text) {
  std::string result(text);
  for (char &c : result)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Characters to insert, delete, replace or swap with their neighbour.
static size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string didYouMean(std::string_view word, std::span<const std::string> known) {
  constexpr size_t longest = 200; // what is longer was no slip of the hand
  if (word.empty() || word.size() > longest)
    return {};
  const std::string wanted = lower(word);
  const std::string *nearest = nullptr;
  size_t least = word.size() / 3 + 1;
  for (const std::string &name : known) {
    if (name.size() > longest)
      continue;
    if (size_t distance = editDistance(wanted, lower(name)); distance < least) {
      least = distance;
      nearest = &name;
    }
  }
  return nearest ? "; did you mean '" + *nearest + "'?" : std::string();
}

} // namespace fusion
