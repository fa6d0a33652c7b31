#include "ir/base/PlainText.h"

#include <algorithm>
#include <utility>

namespace fusion {

/// Whether `next` may stand after `previous` (0 at the beginning).
static bool isPlain(char previous, char next) {
  const bool printable = next >= ' ' && next <= '~' && next != '\\';
  const bool joins = (previous == '*' && next == '/') || (previous == '/' && next == '*') ||
                     (previous == '?' && next == '?');
  return printable && !joins;
}

bool isPlainText(std::string_view text) {
  char previous = 0;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return isPlain(std::exchange(previous, c), c); });
}

std::string plainText(std::string_view text, size_t longest) {
  constexpr std::string_view cut = "...";
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool continues = i > 0 && (text[i] & 0xC0) == 0x80; // the first byte of the character has its `_`
    if (continues)
      continue;
    if (plain.size() == longest) {
      plain.resize(longest - std::min(longest, cut.size()));
      return plain.append(cut);
    }
    plain += isPlain(plain.empty() ? 0 : plain.back(), text[i]) ? text[i] : '_';
  }
  return plain;
}

std::string markdownText(std::string_view text) {
  std::string plain = plainText(text, std::string::npos);
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool opensTag =
        plain[i] == '<' && i + 1 < plain.size() && plain[i + 1] != ' ' && plain[i + 1] != '=';
    plain[i] = plain[i] == '`' ? '\'' : plain[i] == '|' ? '/' : opensTag ? '(' : plain[i];
  }
  return plain;
}

} // namespace fusion
