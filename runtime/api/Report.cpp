// The report read back from its JSON, so that a warm start says the same as a cold one.
#include "passes/fuse/Ledger.h"
#include "runtime/api/Fusion.h"

#include <nlohmann/json.hpp>

namespace fusion {

using Json = nlohmann::json;

static Json parsed(const std::string &text) { return Json::parse(text, nullptr, false); }

int Report::fired(const std::string &pattern) const {
  Json report = parsed(text);
  Json patterns = report.is_object() ? report.value("patterns", Json::object()) : Json::object();
  return patterns.contains(pattern) ? patterns[pattern].value("fired", 0) : 0;
}

static int kernels(const std::string &text, const char *when) {
  Json report = parsed(text);
  return report.is_object() && report.contains("kernels") ? report["kernels"].value(when, 0) : 0;
}
int Report::kernelsBefore() const { return kernels(text, "before"); }
int Report::kernelsAfter() const { return kernels(text, "after"); }

std::string Report::markdown() const { return ledgerFromJson(text).markdown(); }

} // namespace fusion
