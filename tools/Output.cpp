#include "Output.h"

#include "ir/base/MappedFile.h"

#include <charconv>
#include <cstdio>

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
  int number = 0;
  if (target.starts_with("sm_")) {
    const char *end = target.data() + target.size();
    auto [stop, error] = std::from_chars(target.data() + 3, end, number);
    if (error == std::errc() && number >= 80 && (stop == end || (end - stop == 1 && (*stop == 'a' || *stop == 'f'))))
      return {};
  }
  return badInput("--target takes sm_80 or later, such as sm_90a, not '" + target + "'");
}

static bool hasExtension(const std::string &path, const char *extension) { return path.ends_with(extension); }

bool isReportFile(const std::string &path) {
  return hasExtension(path, ".json") || hasExtension(path, ".md") || hasExtension(path, ".html");
}

/// Markdown shown as it is, in a page of its own.
static std::string html(const Ledger &ledger) {
  std::string body;
  for (char c : ledger.markdown()) {
    if (c == '<')
      body += "&lt;";
    else if (c == '&')
      body += "&amp;";
    else
      body += c;
  }
  return "<!doctype html>\n<html><head><meta charset=\"utf-8\"><title>Fusion report</title></head>\n<body><pre>\n" +
         body + "</pre></body></html>\n";
}

Status writeReport(const std::string &path, const Ledger &ledger) {
  if (hasExtension(path, ".json"))
    return writeFileAtomically(path, ledger.json());
  return writeFileAtomically(path, hasExtension(path, ".md") ? ledger.markdown() : html(ledger));
}

Status writeOutput(const std::string &path, const std::string &text) {
  if (path != "-")
    return writeFileAtomically(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return environment("cannot write to stdout");
  return {};
}

} // namespace fusion
