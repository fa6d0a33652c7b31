#include "codegen/plan/Comments.h"

namespace fusion {

std::string withoutComments(std::string_view source) {
  std::string code;
  while (!source.empty()) {
    const size_t length = std::min(source.find('\n'), source.size());
    std::string_view line = source.substr(0, length);
    source.remove_prefix(std::min(length + 1, source.size()));
    const size_t start = line.find_first_not_of(" \t");
    if (start != std::string_view::npos && line.substr(start).starts_with("//"))
      continue;
    code += line;
    code += '\n';
  }
  return code;
}

} // namespace fusion
