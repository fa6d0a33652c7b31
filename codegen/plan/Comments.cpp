#include "codegen/plan/Comments.h"

#include "ir/base/PlainText.h"

namespace fusion {

/// Whether what follows `line` may be anything: it is inside of a block comment or raw string, or joined to
/// the line.
static bool goesOn(std::string_view line) {
  for (std::string_view mark : {"/*", "R\"", "\\ ", "\\\t", "\\\r", "?" "?/"})
    if (line.find(mark) != std::string_view::npos)
      return true;
  return line.ends_with('\\');
}

std::string withoutComments(std::string_view source) {
  std::string code;
  bool certain = true; // that a line of its own begins here
  while (!source.empty()) {
    const size_t length = std::min(source.find('\n'), source.size());
    std::string_view line = source.substr(0, length);
    source.remove_prefix(std::min(length + 1, source.size()));
    const size_t start = std::min(line.find_first_not_of(" \t"), line.size());
    if (certain && line.substr(start).starts_with("//") && isPlainText(line.substr(start)))
      continue;
    certain = certain && !goesOn(line);
    code += line;
    code += '\n';
  }
  return code;
}

} // namespace fusion
