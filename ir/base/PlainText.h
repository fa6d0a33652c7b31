// Names come from graph files. What is written into source, listings or reports goes through here.
#pragma once

#include <string>
#include <string_view>

namespace fusion {

/// `text` as part of one line that a C++ compiler reads as comment whatever stands before and after it:
/// printable ASCII without backslashes, `*/`, `/*` and trigraphs, at most `longest` characters. What is
/// replaced becomes `_`, one for each character of UTF-8; a longer text ends in "...".
std::string plainText(std::string_view text, size_t longest = 200);

/// The same, of any length, inside of a Markdown table, a heading or a `code span`: it can end none of them
/// and has no HTML.
std::string markdownText(std::string_view text);

/// A message as one line of UTF-8, and not a screenful: what is quoted in it may be anything.
std::string oneLine(std::string_view message);

/// True for UTF-8: every character in its shortest form, no halves of surrogates.
bool isUtf8(std::string_view text);

/// True for what plainText() leaves as it is, at any length.
bool isPlainText(std::string_view text);

} // namespace fusion
