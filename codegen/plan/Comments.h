// Kernels that differ in comments only are one kernel.
#pragma once

#include <string>
#include <string_view>

namespace fusion {

/// `source` without the lines that hold nothing but a `//` comment.
std::string withoutComments(std::string_view source);

} // namespace fusion
