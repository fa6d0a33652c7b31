#include "ir/base/TextNesting.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <string>
#include <unordered_map>

namespace fusion {

namespace {

constexpr int deepest = 256;

class Scanner {
public:
  explicit Scanner(std::string_view text) : text(text) {}

  Status scan() {
    while (at < text.size()) {
      const char c = text[at];
      if (c == '"')
        skipString();
      else if (text.substr(at).starts_with("//"))
        at = std::min(text.find('\n', at), text.size());
      else if (text.substr(at).starts_with("->"))
        at += 2;
      else if (c == '#' || c == '!')
        alias();
      else if (c == '%' || c == '@' || c == '^')
        skipName();
      else if (inWord(c))
        word();
      else
        bracket(c);
      if (reached > deepest)
        return badInput(fmt::format("nested more than {} deep", deepest));
      if (hasAffine)
        return badInput("affine maps and sets are no part of it");
    }
    return {};
  }

private:
  static bool inWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$';
  }

  std::string_view readWord() {
    const size_t begin = at;
    while (at < text.size() && inWord(text[at]))
      ++at;
    return text.substr(begin, at - begin);
  }

  void word() {
    const std::string_view name = readWord();
    hasAffine = hasAffine || name == "affine_map" || name == "affine_set";
  }

  void skipName() {
    ++at;
    readWord();
  }

  void skipString() {
    for (++at; at < text.size() && text[at] != '"'; ++at)
      if (text[at] == '\\')
        ++at;
    at = std::min(at + 1, text.size());
  }

  void bracket(char c) {
    ++at;
    if (c == '(' || c == '[' || c == '{' || c == '<')
      reach(++depth);
    else if (c == ')' || c == ']' || c == '}' || c == '>')
      depth = std::max(depth - 1, 0);
  }

  /// `#name = …` begins a definition, which lasts until the next one; elsewhere it is a use.
  void alias() {
    const char kind = text[at++];
    const std::string_view name = readWord();
    if (name.empty())
      return;
    const size_t next = text.find_first_not_of(" \t\r\n", at);
    const bool defines = depth == 0 && next != std::string_view::npos && text[next] == '=' &&
                         !text.substr(next).starts_with("==");
    const std::string key = kind + std::string(name);
    if (defines) {
      defined = &depths[key];
      return;
    }
    if (auto found = depths.find(key); found != depths.end())
      reach(depth + found->second + 1);
  }

  void reach(int here) {
    reached = std::max(reached, here);
    if (defined)
      *defined = std::max(*defined, here);
  }

  std::string_view text;
  size_t at = 0;
  int depth = 0, reached = 0;
  bool hasAffine = false;
  std::unordered_map<std::string, int> depths; ///< of aliases
  int *defined = nullptr;                      ///< of the alias that is being defined
};

} // namespace

Status checkNesting(std::string_view text) {
  if (text.starts_with("ML\xefR"))
    return badInput("is MLIR bytecode, not text");
  return Scanner(text).scan();
}

} // namespace fusion
