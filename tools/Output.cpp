#include "Output.h"

#include "ir/base/MappedFile.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace fusion {

std::optional<std::pair<std::string, size_t>> parseRequirement(const std::string &text) {
  size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    return std::nullopt;
  size_t count = 0;
  const char *end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data() + equals + 1, end, count);
  if (error != std::errc() || stop != end)
    return std::nullopt;
  return std::pair(text.substr(0, equals), count);
}

Status writeOutput(const std::string &path, const std::string &text) {
  if (path != "-")
    return writeFileAtomically(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return environment(std::string("cannot write to stdout: ") + std::strerror(errno));
  return {};
}

} // namespace fusion
