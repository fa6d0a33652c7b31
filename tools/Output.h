// What the tools share: option texts, reports and output files.
#pragma once

#include "ir/base/Result.h"
#include "passes/fuse/Ledger.h"

#include <optional>
#include <string>
#include <utility>

namespace fusion {

/// `NAME=N`.
std::optional<std::pair<std::string, size_t>> parseRequirement(const std::string &text);
/// An architecture that kernels can be compiled for: sm_80 and later.
Status checkTarget(const std::string &target);
bool isReportFile(const std::string &path);
/// Format by extension. Never leaves a partial file.
Status writeReport(const std::string &path, const Ledger &ledger);
/// `-` is stdout. Never leaves a partial file.
Status writeOutput(const std::string &path, const std::string &text);

} // namespace fusion
