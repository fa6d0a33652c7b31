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

/// Bytes of the character of UTF-8 that `text` begins with; 0: there is none.
static size_t characterAt(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t size = byte(0) < 0x80 ? 1 : byte(0) < 0xc2 ? 0 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3
                      : byte(0) < 0xf5 ? 4 : 0;
  if (size > text.size())
    return 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
  const bool isLonger = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool isOutside = (byte(0) == 0xed && byte(1) > 0x9f) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return isLonger || isOutside ? 0 : size;
}

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = characterAt(text);
    if (size == 0)
      return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string oneLine(std::string_view message) {
  constexpr size_t most = 2000, end = 500;
  std::string whole(message);
  if (message.size() > most + end)
    whole = std::string(message.substr(0, most)) + " … " + std::string(message.substr(message.size() - end));
  std::string text;
  for (std::string_view rest = whole; !rest.empty();) {
    const size_t size = characterAt(rest);
    const bool isControl = static_cast<unsigned char>(rest[0]) < ' ' || rest[0] == 127;
    text += size == 0 ? "?" : isControl ? " " : rest.substr(0, size);
    rest.remove_prefix(std::max<size_t>(size, 1));
  }
  return text;
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
