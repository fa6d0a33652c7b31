// Kernels that differ in comments only are one kernel.
#pragma once

#include <string>
#include <string_view>

namespace fusion {

/// `source` without the lines that hold nothing but a `//` comment. What a compiler could read as code stays:
/// comments with characters that plainText() (ir/base/PlainText.h) replaces, and all that follows a block
/// comment, a raw string or a joined line.
std::string withoutComments(std::string_view source);

} // namespace fusion
