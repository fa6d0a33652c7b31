// What the tools print and write.
#pragma once

#include "ir/base/Result.h"

#include <optional>
#include <string>
#include <utility>

namespace fusion {

/// `NAME=N`.
std::optional<std::pair<std::string, size_t>> parseRequirement(const std::string &text);
/// `-` is stdout. Never leaves a partial file.
Status writeOutput(const std::string &path, const std::string &text);

} // namespace fusion
