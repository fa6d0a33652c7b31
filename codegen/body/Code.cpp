#include "codegen/body/Code.h"

#include <algorithm>
#include <utility>

namespace fusion::body {

void Code::line(std::string_view text) {
  const bool isComment = text.starts_with("//"); // whose names of a graph may end in anything
  if (text.starts_with("}") && indent > 0)
    --indent;
  if (!text.starts_with("#"))
    lines.append(2 * indent, ' ');
  lines += text;
  lines += '\n';
  if (text.ends_with("{") && !isComment)
    ++indent;
}

/// Where to break the line, which is too long: at a space of its second half, after a comma if there is one,
/// and of those the last one in the fewest brackets.
static size_t breakOf(std::string_view line, size_t indent) {
  size_t best = std::string_view::npos;
  std::pair<bool, int> least;
  int depth = 0;
  for (size_t i = indent; i < std::min(line.size(), lineLength + 1); ++i) {
    const char c = line[i], before = line[i - 1];
    const bool isTemplate = (c == '<' || c == '>') && before != ' ';
    if (c == '(' || c == '[' || c == '{' || (c == '<' && isTemplate))
      ++depth;
    else if (c == ')' || c == ']' || c == '}' || (c == '>' && isTemplate))
      --depth;
    const std::pair<bool, int> place(before != ',', depth);
    if (c == ' ' && i > lineLength / 2 && (best == std::string_view::npos || place <= least)) {
      best = i;
      least = place;
    }
  }
  return best;
}

std::string fitted(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const bool isComment = std::string_view(line).substr(indent).starts_with("//");
    const std::string next = isComment ? std::string(indent, ' ') + "//   " : std::string(indent + 4, ' ');
    while (line.size() > lineLength && line[0] != '#') {
      const size_t at = breakOf(line, next.size());
      if (at == std::string_view::npos)
        break;
      result += line.substr(0, line.find_last_not_of(' ', at) + 1) + '\n';
      line = next + line.substr(std::min(line.find_first_not_of(' ', at), line.size()));
    }
    result += line + '\n';
  }
  return result;
}

} // namespace fusion::body
