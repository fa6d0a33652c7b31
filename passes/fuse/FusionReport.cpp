#include "passes/fuse/FusionReport.h"

#include "ir/base/PlainText.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

namespace fusion {

static llvm::json::Object jsonOf(const std::map<std::string, FusionReport::Pattern> &patterns) {
  llvm::json::Object patternObject;
  for (const auto &[name, pattern] : patterns) {
    llvm::json::Array sites, missed;
    for (const FusionReport::Site &site : pattern.fired) {
      llvm::json::Object entry{{"location", site.location},
                               {"ops", llvm::json::Array(site.ops)},
                               {"bytes_saved", site.bytesSaved}};
      if (!site.assumes.empty())
        entry["assumes"] = site.assumes;
      sites.push_back(std::move(entry));
    }
    for (const FusionReport::Miss &miss : pattern.missed)
      missed.push_back(llvm::json::Object{{"location", miss.location}, {"reason", miss.reason}});
    patternObject[name] = llvm::json::Object{{"fired", static_cast<int64_t>(pattern.fired.size())},
                                             {"sites", std::move(sites)},
                                             {"missed", std::move(missed)}};
  }
  return patternObject;
}

std::string FusionReport::json() const {
  llvm::json::Array layerArray;
  for (const Layer &layer : layers)
    layerArray.push_back(llvm::json::Object{{"name", layer.name}, {"kernels", layer.kernels}});
  llvm::json::Object nominalObject;
  for (const auto &[symbol, size] : nominal)
    nominalObject[symbol] = size;
  llvm::json::Array unusedArray;
  for (const std::string &feature : unusedFeatures)
    unusedArray.push_back(feature);
  llvm::json::Array unmeasuredArray;
  for (const Miss &miss : unmeasured)
    unmeasuredArray.push_back(llvm::json::Object{{"location", miss.location}, {"reason", miss.reason}});
  llvm::json::Object object{
      {"model", model},
      {"target", target},
      {"unused_features", std::move(unusedArray)},
      {"patterns", jsonOf(patterns)},
      {"raises", jsonOf(raises)},
      {"kernels", llvm::json::Object{{"before", kernelsBefore}, {"after", kernelsAfter}}},
      {"bytes", llvm::json::Object{{"before", bytesBefore}, {"after", bytesAfter}}},
      {"layers", std::move(layerArray)},
      {"profit", profit},
      {"unmeasured", std::move(unmeasuredArray)},
      {"nominal", std::move(nominalObject)}};
  if (!noPlan.empty())
    object["no_plan"] = noPlan;
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(object))).str();
}

FusionReport reportFromJson(llvm::StringRef text) {
  FusionReport report;
  auto value = llvm::json::parse(text);
  if (!value) {
    llvm::consumeError(value.takeError());
    return report;
  }
  const llvm::json::Object *root = value->getAsObject();
  if (!root)
    return report;
  report.model = root->getString("model").value_or("").str();
  report.target = root->getString("target").value_or("").str();
  report.noPlan = root->getString("no_plan").value_or("").str();
  if (const llvm::json::Array *features = root->getArray("unused_features"))
    for (const llvm::json::Value &feature : *features)
      report.unusedFeatures.push_back(feature.getAsString().value_or("").str());
  report.profit = root->getString("profit").value_or(report.profit).str();
  auto counts = [&](const char *key, int64_t &before, int64_t &after) {
    if (const llvm::json::Object *object = root->getObject(key)) {
      before = object->getInteger("before").value_or(0);
      after = object->getInteger("after").value_or(0);
    }
  };
  counts("kernels", report.kernelsBefore, report.kernelsAfter);
  counts("bytes", report.bytesBefore, report.bytesAfter);
  auto entries = [](const llvm::json::Object &object, const char *key, auto &&each) {
    if (const llvm::json::Array *array = object.getArray(key))
      for (const llvm::json::Value &entry : *array)
        if (const llvm::json::Object *fields = entry.getAsObject())
          each(*fields);
  };
  auto readPatterns = [&](const char *key, std::map<std::string, FusionReport::Pattern> &into) {
    const llvm::json::Object *patterns = root->getObject(key);
    if (!patterns)
      return;
    for (const auto &[name, fields] : *patterns) {
      FusionReport::Pattern &pattern = into[name.str()];
      if (const llvm::json::Object *object = fields.getAsObject()) {
        entries(*object, "sites", [&](const llvm::json::Object &site) {
          FusionReport::Site &entry = pattern.fired.emplace_back();
          entry.location = site.getString("location").value_or("").str();
          entry.bytesSaved = site.getInteger("bytes_saved").value_or(0);
          entry.assumes = site.getString("assumes").value_or("").str();
          if (const llvm::json::Array *ops = site.getArray("ops"))
            for (const llvm::json::Value &op : *ops)
              entry.ops.push_back(op.getAsString().value_or("").str());
        });
        entries(*object, "missed", [&](const llvm::json::Object &miss) {
          pattern.missed.push_back({miss.getString("location").value_or("").str(),
                                    miss.getString("reason").value_or("").str()});
        });
      }
    }
  };
  entries(*root, "unmeasured", [&](const llvm::json::Object &miss) {
    report.unmeasured.push_back({miss.getString("location").value_or("").str(),
                                 miss.getString("reason").value_or("").str()});
  });
  readPatterns("patterns", report.patterns);
  readPatterns("raises", report.raises);
  entries(*root, "layers", [&](const llvm::json::Object &layer) {
    report.layers.push_back(
        {layer.getString("name").value_or("").str(), layer.getInteger("kernels").value_or(0)});
  });
  if (const llvm::json::Object *nominal = root->getObject("nominal"))
    for (const auto &[symbol, size] : *nominal)
      report.nominal[symbol.str()] = size.getAsInteger().value_or(0);
  return report;
}

std::string FusionReport::markdown() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "# Fusion report: " << markdownText(model) << " (" << markdownText(target) << ")\n\n";
  out << llvm::formatv("Kernels {0} → {1}, memory traffic {2} → {3} bytes", kernelsBefore, kernelsAfter,
                       bytesBefore, bytesAfter);
  if (!nominal.empty()) {
    out << " at ";
    llvm::interleaveComma(
        nominal, out, [&](const auto &entry) { out << markdownText(entry.first) << " = " << entry.second; });
  }
  out << ".\nProfit: " << profit << ".\n";
  if (!noPlan.empty())
    out << "\n**No GPU plan**: " << markdownText(noPlan) << "\n\n";
  if (!unusedFeatures.empty())
    out << "Features of " << target << " that no kernel uses yet: " << llvm::join(unusedFeatures, ", ")
        << ".\n";
  for (const Miss &miss : unmeasured)
    out << "- modelled at `" << markdownText(miss.location) << "`: " << markdownText(miss.reason) << "\n";
  out << "\n| fusion | fired | missed |\n|---|---|---|\n";
  for (const auto &[name, pattern] : patterns)
    out << "| " << markdownText(name) << " | " << pattern.fired.size() << " | " << pattern.missed.size()
        << " |\n";
  for (const auto &[name, pattern] : patterns) {
    if (pattern.fired.empty() && pattern.missed.empty())
      continue;
    out << "\n## " << markdownText(name) << "\n\n";
    for (const Site &site : pattern.fired)
      out << "- fired at `" << markdownText(site.location) << "`: " << llvm::join(site.ops, " → ") << ", "
          << site.bytesSaved << " bytes saved\n";
    for (const Miss &miss : pattern.missed)
      if (miss.location.empty())
        out << "- missed everywhere: " << markdownText(miss.reason) << "\n";
      else
        out << "- missed at `" << markdownText(miss.location) << "`: " << markdownText(miss.reason) << "\n";
  }
  if (!raises.empty())
    out << "\n## Named ops found in decomposed spellings\n\n| op | found | missed |\n|---|---|---|\n";
  for (const auto &[name, pattern] : raises)
    out << "| " << markdownText(name) << " | " << pattern.fired.size() << " | " << pattern.missed.size()
        << " |\n";
  for (const auto &[name, pattern] : raises)
    for (const Site &site : pattern.fired)
      if (!site.assumes.empty())
        out << "\n- " << markdownText(name) << " found at `" << markdownText(site.location)
            << "`: " << markdownText(site.assumes) << "\n";
  for (const auto &[name, pattern] : raises)
    for (const Miss &miss : pattern.missed)
      out << "\n- " << markdownText(name) << " missed at `" << markdownText(miss.location)
          << "`: " << markdownText(miss.reason) << "\n";
  if (!layers.empty()) {
    out << "\n## Kernels by layer\n\n| layer | kernels |\n|---|---|\n";
    for (const Layer &layer : layers)
      out << "| `" << markdownText(layer.name) << "` | " << layer.kernels << " |\n";
  }
  return text;
}

} // namespace fusion
