// Lines of emitted source, indented by their braces; fresh names.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace fusion::body {

/// Names that stand for one thing in one kernel.
class Names {
public:
  /// "x3" of "x".
  std::string fresh(std::string_view stem) {
    return std::string(stem) + std::to_string(counts[std::string(stem)]++);
  }

private:
  std::map<std::string, unsigned> counts;
};

/// Columns of a line of emitted source.
constexpr size_t lineLength = 110;
/// The text with longer lines broken at spaces; what follows is indented by four more.
std::string fitted(std::string_view text);

class Code {
public:
  explicit Code(unsigned indent = 1) : indent(indent) {}
  /// A line that begins with "}" leaves a level, one that ends in "{" enters one.
  void line(std::string_view text);
  const std::string &text() const { return lines; }
  bool empty() const { return lines.empty(); }

private:
  std::string lines;
  unsigned indent;
};

} // namespace fusion::body
