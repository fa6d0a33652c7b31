#include "Output.h"
#include "HtmlReport.h"

#include "ir/base/MappedFile.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
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

Status checkTarget(const std::string &target) {
  static constexpr std::string_view known[] = {"80", "86", "87", "88", "89", "90", "100", "103", "110", "120", "121"};
  std::string_view number = target;
  if (number.starts_with("sm_")) {
    number.remove_prefix(3);
    // `a` is an architecture's own instructions, `f` those of its family.
    if (number.ends_with('a') && std::atoi(number.data()) >= 90)
      number.remove_suffix(1);
    else if (number.ends_with('f') && std::atoi(number.data()) >= 100)
      number.remove_suffix(1);
    if (std::find(std::begin(known), std::end(known), number) != std::end(known))
      return {};
  }
  return badInput("--target takes sm_80 or later, such as sm_90a, not '" + target + "'");
}

static bool hasExtension(const std::string &path, const char *extension) { return path.ends_with(extension); }

bool isReportFile(const std::string &path) {
  return hasExtension(path, ".json") || hasExtension(path, ".md") || hasExtension(path, ".html");
}

Status writeReport(const std::string &path, const Ledger &ledger) {
  if (hasExtension(path, ".json"))
    return writeFileAtomically(path, ledger.json());
  return writeFileAtomically(path, hasExtension(path, ".md") ? ledger.markdown() : htmlReport(ledger));
}

Status writeOutput(const std::string &path, const std::string &text) {
  if (path != "-")
    return writeFileAtomically(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return environment(std::string("cannot write to stdout: ") + std::strerror(errno));
  return {};
}

} // namespace fusion
