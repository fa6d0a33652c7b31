#include "passes/fuse/FusionReport.h"

#include "ir/base/PlainText.h"
#include "ir/base/Units.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <set>

namespace fusion {

namespace {
class Markdown {
public:
  Markdown(const FusionReport &report, llvm::raw_ostream &out) : report(report), out(out) {
    for (const std::string &name : report.structure.layers)
      if (size_t dot = name.rfind('.'); dot != std::string::npos)
        prefixes.insert(name.substr(0, dot + 1));
  }

  void write() {
    head();
    counts();
    sites();
    misses();
    raises();
    layers();
  }

private:
  void head() {
    out << "# Fusion report: " << markdownText(report.model) << " (" << markdownText(report.target)
        << ")\n\n";
    out << llvm::formatv("Kernels {0} → {1}, memory traffic {2} → {3}", report.kernelsBefore,
                         report.kernelsAfter, bytesText(report.bytesBefore), bytesText(report.bytesAfter));
    if (!report.nominal.empty()) {
      out << " at ";
      llvm::interleaveComma(report.nominal, out, [&](const auto &entry) {
        out << markdownText(entry.first) << " = " << entry.second;
      });
    }
    out << ".\nProfit: " << report.profit << ".\n";
    if (!report.noPlan.empty())
      out << "\n**No GPU plan**: " << markdownText(report.noPlan) << "\n\n";
    if (!report.unusedFeatures.empty())
      out << "Features of " << report.target
          << " that no kernel uses yet: " << llvm::join(report.unusedFeatures, ", ") << ".\n";
    for (const FusionReport::Miss &miss : report.unmeasured)
      out << "- modelled at `" << markdownText(miss.location) << "`: " << markdownText(miss.reason) << "\n";
  }

  void counts() {
    out << "\n| fusion | fired | missed | saved | could save |\n|---|---|---|---|---|\n";
    std::string others;
    for (const auto &[name, pattern] : report.patterns) {
      if (!isShown(pattern)) {
        others += (others.empty() ? "" : ", ") + markdownText(name);
        continue;
      }
      int64_t saved = 0, lost = 0;
      for (const FusionReport::Site &site : pattern.fired)
        saved += site.bytesSaved;
      for (const FusionReport::Miss &miss : pattern.missed)
        lost += miss.bytes;
      out << llvm::formatv("| {0} | {1} | {2} | {3} | {4} |\n", markdownText(name), pattern.fired.size(),
                           pattern.missed.size(), saved > 0 ? bytesText(saved) : "",
                           lost > 0 ? bytesText(lost) : "");
    }
    if (!others.empty())
      out << "\n- nothing for them in this graph: " << others << "\n";
  }

  static bool isShown(const FusionReport::Pattern &pattern) {
    return pattern.applies || !pattern.fired.empty();
  }

  /// The sites of the first of layers that are alike, then those outside of layers.
  void sites() {
    const FusionReport::Structure &structure = report.structure;
    for (const Fold &fold : structure.folds)
      for (size_t layer = fold.first; layer < fold.first + fold.layers; ++layer) {
        const size_t last = layer + fold.layers * (fold.times - 1);
        std::string title = "`" + markdownText(structure.layers[layer]) + "`";
        if (fold.times > 1)
          title += llvm::formatv(" … `{0}`: {1} alike{2}", markdownText(structure.layers[last]), fold.times,
                                 fold.layers > 1 ? llvm::formatv(", every {0}th", fold.layers).str() : "")
                       .str();
        sitesOf(layer, title);
      }
    sitesOf(std::nullopt, structure.layers.empty() ? "What fused" : "Outside of layers");
  }

  /// In the order of the graph.
  void sitesOf(std::optional<size_t> layer, const std::string &title) {
    std::vector<std::pair<const std::string *, const FusionReport::Site *>> found;
    for (const auto &[name, pattern] : report.patterns)
      for (const FusionReport::Site &site : pattern.fired)
        if (layerOfNode(report.structure.after, site.node) == layer)
          found.push_back({&name, &site});
    if (found.empty())
      return;
    llvm::stable_sort(found, [](auto &a, auto &b) { return a.second->node < b.second->node; });
    out << "\n## " << title << "\n\n";
    for (auto &[name, site] : found) {
      out << "- " << markdownText(*name) << " at `" << markdownText(inLayer(site->location, layer))
          << "`: " << llvm::join(site->ops, " → ") << ", " << bytesText(site->bytesSaved) << " saved";
      if (site->unfusedTime > 0)
        out << llvm::formatv(", {0} instead of {1}", microsecondsText(site->fusedTime),
                             microsecondsText(site->unfusedTime));
      out << "\n";
    }
  }

  static std::optional<size_t> layerOfNode(const std::vector<std::optional<size_t>> &layers,
                                           std::optional<size_t> node) {
    return node && *node < layers.size() ? layers[*node] : std::nullopt;
  }

  std::string inLayer(const std::string &location, std::optional<size_t> layer) const {
    llvm::StringRef rest = location;
    return layer && rest.consume_front(report.structure.layers[*layer] + ".") ? rest.str() : location;
  }

  /// `layers.*` for the number of any layer.
  std::string masked(llvm::StringRef text) const {
    std::string result;
    while (!text.empty()) {
      llvm::StringRef found;
      for (const std::string &prefix : prefixes)
        if (text.starts_with(prefix) && text.size() > prefix.size() && llvm::isDigit(text[prefix.size()]) &&
            (result.empty() ||
             (!llvm::isAlnum(result.back()) && result.back() != '.' && result.back() != '_')))
          found = prefix;
      if (found.empty()) {
        result += text.front();
        text = text.drop_front();
        continue;
      }
      result += found.str() + "*";
      text = text.drop_front(found.size()).drop_while([](char c) { return llvm::isDigit(c); });
    }
    return result;
  }

  /// The dearest first; those of alike layers in one line.
  void misses() {
    struct Row {
      const std::string *pattern;
      const FusionReport::Miss *miss;
      int64_t bytes = 0;
      size_t count = 0;
    };
    llvm::MapVector<std::string, Row, std::map<std::string, unsigned>> byText;
    for (const auto &[name, pattern] : report.patterns)
      for (const FusionReport::Miss &miss : pattern.missed) {
        if (!isShown(pattern) && miss.reason != "disabled by option")
          continue;
        Row &row = byText[name + "\n" + masked(miss.location) + "\n" + masked(miss.reason)];
        if (row.count++ == 0)
          row = {&name, &miss, 0, 1};
        row.bytes += miss.bytes;
      }
    std::vector<Row> rows;
    for (auto &[text, row] : byText)
      rows.push_back(row);
    llvm::stable_sort(rows, [](const Row &a, const Row &b) { return a.bytes > b.bytes; });
    if (!rows.empty())
      out << "\n## What did not fuse, the dearest first\n\n| could save | sites | fusion | where | why "
             "|\n|---|---|---|---|---|\n";
    for (const Row &row : rows) {
      auto shown = [&](const std::string &text) { return markdownText(row.count > 1 ? masked(text) : text); };
      const std::string where =
          row.miss->location.empty() ? "everywhere" : "`" + shown(row.miss->location) + "`";
      out << llvm::formatv("| {0} | {1} | {2} | {3} | {4} |\n", row.bytes > 0 ? bytesText(row.bytes) : "",
                           row.count, markdownText(*row.pattern), where, shown(row.miss->reason));
    }
  }

  void raises() {
    if (!report.raises.empty())
      out << "\n## Named ops found in decomposed spellings\n\n| op | found | missed |\n|---|---|---|\n";
    for (const auto &[name, pattern] : report.raises)
      out << "| " << markdownText(name) << " | " << pattern.fired.size() << " | " << pattern.missed.size()
          << " |\n";
    std::set<std::string> said; // once for alike layers
    for (const auto &[name, pattern] : report.raises) {
      for (const FusionReport::Site &site : pattern.fired)
        if (!site.assumes.empty())
          line(name + " found", site.location, site.assumes, said);
      for (const FusionReport::Miss &miss : pattern.missed)
        line(name + " missed", miss.location, miss.reason, said);
    }
  }

  void line(const std::string &what, const std::string &location, const std::string &why,
            std::set<std::string> &said) {
    const std::string where = masked(location), reason = masked(why);
    if (said.insert(what + "\n" + where + "\n" + reason).second)
      out << "\n- " << markdownText(what) << " at `" << markdownText(where) << "`: " << markdownText(reason)
          << "\n";
  }

  void layers() {
    if (report.layers.empty())
      return;
    out << "\n## Kernels by layer\n\n| layer | kernels |\n|---|---|\n";
    for (size_t i = 0; i < report.layers.size();) {
      size_t end = i + 1;
      while (end < report.layers.size() && report.layers[end].kernels == report.layers[i].kernels)
        ++end;
      out << "| `" << markdownText(report.layers[i].name) << "`";
      if (end - i > 1)
        out << " … `" << markdownText(report.layers[end - 1].name) << "`";
      out << " | " << report.layers[i].kernels << (end - i > 1 ? " each" : "") << " |\n";
      i = end;
    }
  }

  const FusionReport &report;
  llvm::raw_ostream &out;
  std::set<std::string> prefixes; ///< of the layers' names: "model.layers."
};
} // namespace

std::string FusionReport::markdown() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  Markdown(*this, out).write();
  return text;
}

} // namespace fusion
