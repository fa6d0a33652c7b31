#include "passes/fuse/Ledger.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

namespace fusion {

std::string Ledger::json() const {
  llvm::json::Object patternObject;
  for (const auto &[name, pattern] : patterns) {
    llvm::json::Array sites, missed;
    for (const Site &site : pattern.fired)
      sites.push_back(llvm::json::Object{
          {"location", site.location}, {"ops", llvm::json::Array(site.ops)}, {"bytes_saved", site.bytesSaved}});
    for (const Miss &miss : pattern.missed)
      missed.push_back(llvm::json::Object{{"location", miss.location}, {"reason", miss.reason}});
    patternObject[name] = llvm::json::Object{{"fired", static_cast<int64_t>(pattern.fired.size())},
                                             {"sites", std::move(sites)},
                                             {"missed", std::move(missed)}};
  }
  llvm::json::Array layerArray;
  for (const Layer &layer : layers)
    layerArray.push_back(llvm::json::Object{{"name", layer.name}, {"kernels", layer.kernels}});
  llvm::json::Object nominalObject;
  for (const auto &[symbol, size] : nominal)
    nominalObject[symbol] = size;
  llvm::json::Object report{
      {"model", model},
      {"target", target},
      {"patterns", std::move(patternObject)},
      {"kernels", llvm::json::Object{{"before", kernelsBefore}, {"after", kernelsAfter}}},
      {"bytes", llvm::json::Object{{"before", bytesBefore}, {"after", bytesAfter}}},
      {"layers", std::move(layerArray)},
      {"nominal", std::move(nominalObject)}};
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(report))).str();
}

std::string Ledger::markdown() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "# Fusion report: " << model << " (" << target << ")\n\n";
  out << llvm::formatv("Kernels {0} → {1}, memory traffic {2} → {3} bytes", kernelsBefore, kernelsAfter, bytesBefore,
                       bytesAfter);
  if (!nominal.empty()) {
    out << " at ";
    llvm::interleaveComma(nominal, out, [&](const auto &entry) { out << entry.first << " = " << entry.second; });
  }
  out << ".\n\n| fusion | fired | missed |\n|---|---|---|\n";
  for (const auto &[name, pattern] : patterns)
    out << "| " << name << " | " << pattern.fired.size() << " | " << pattern.missed.size() << " |\n";
  for (const auto &[name, pattern] : patterns) {
    if (pattern.fired.empty() && pattern.missed.empty())
      continue;
    out << "\n## " << name << "\n\n";
    for (const Site &site : pattern.fired)
      out << "- fired at `" << site.location << "`: " << llvm::join(site.ops, " → ") << ", " << site.bytesSaved
          << " bytes saved\n";
    for (const Miss &miss : pattern.missed)
      out << "- missed at `" << miss.location << "`: " << miss.reason << "\n";
  }
  if (!layers.empty()) {
    out << "\n## Kernels by layer\n\n| layer | kernels |\n|---|---|\n";
    for (const Layer &layer : layers)
      out << "| `" << layer.name << "` | " << layer.kernels << " |\n";
  }
  return text;
}

} // namespace fusion
