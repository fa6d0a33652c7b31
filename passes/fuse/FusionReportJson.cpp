#include "passes/fuse/FusionReport.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace fusion {

// Arrays of a report may be long and one of llvm's objects has kilobytes: each entry is written by itself.
// Keys are sorted, as llvm sorts those of objects.

static void write(llvm::json::OStream &out, const std::map<std::string, FusionReport::Pattern> &patterns) {
  auto writeMissed = [&](const FusionReport::Pattern &pattern) {
    for (const FusionReport::Miss &miss : pattern.missed) {
      llvm::json::Object entry{{"location", miss.location}, {"reason", miss.reason}, {"bytes", miss.bytes}};
      if (miss.node)
        entry["node"] = static_cast<int64_t>(*miss.node);
      out.value(std::move(entry));
    }
  };
  auto writeSites = [&](const FusionReport::Pattern &pattern) {
    for (const FusionReport::Site &site : pattern.fired) {
      llvm::json::Object entry{{"location", site.location},
                               {"ops", llvm::json::Array(site.ops)},
                               {"bytes_saved", site.bytesSaved}};
      if (!site.assumes.empty())
        entry["assumes"] = site.assumes;
      if (site.node)
        entry["node"] = static_cast<int64_t>(*site.node);
      if (site.unfusedTime > 0)
        entry["microseconds"] = llvm::json::Object{{"fused", site.fusedTime}, {"unfused", site.unfusedTime}};
      out.value(std::move(entry));
    }
  };
  for (const auto &[name, pattern] : patterns)
    out.attributeObject(name, [&] {
      out.attribute("applies", pattern.applies || !pattern.fired.empty());
      out.attribute("fired", static_cast<int64_t>(pattern.fired.size()));
      out.attributeArray("missed", [&] { writeMissed(pattern); });
      out.attributeArray("sites", [&] { writeSites(pattern); });
    });
}

static void write(llvm::json::OStream &out, const std::vector<FusionReport::Node> &nodes,
                  const std::vector<std::optional<size_t>> &layers) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const FusionReport::Node &node = nodes[i];
    llvm::json::Object entry{{"ops", llvm::json::Array(node.ops)},
                             {"location", node.location},
                             {"result", node.result},
                             {"bytes", node.bytes},
                             {"inputs", llvm::json::Array(node.inputs)}};
    if (!node.fusion.empty())
      entry["fusion"] = node.fusion;
    if (node.group)
      entry["node"] = static_cast<int64_t>(*node.group);
    if (i < layers.size() && layers[i])
      entry["layer"] = static_cast<int64_t>(*layers[i]);
    out.value(std::move(entry));
  }
}

static void writeGraph(llvm::json::OStream &out, const FusionReport &report) {
  const FusionReport::Structure &structure = report.structure;
  out.attributeArray("after", [&] { write(out, report.after, structure.after); });
  out.attributeArray("before", [&] { write(out, report.before, structure.before); });
  out.attributeArray("folds", [&] {
    for (const Fold &fold : structure.folds)
      out.value(llvm::json::Object{{"first", static_cast<int64_t>(fold.first)},
                                   {"layers", static_cast<int64_t>(fold.layers)},
                                   {"times", static_cast<int64_t>(fold.times)}});
  });
  out.attributeArray("layers", [&] {
    for (size_t i = 0; i < structure.layers.size(); ++i)
      out.value(llvm::json::Object{{"name", structure.layers[i]},
                                   {"like", static_cast<int64_t>(structure.alike[i])}});
  });
}

std::string FusionReport::json(WriteEntries kernelSources, WriteEntries launches) const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream out(stream, 2);
  auto writeAll = [&] {
    out.attribute("bytes", llvm::json::Object{{"before", bytesBefore}, {"after", bytesAfter}});
    out.attributeObject("graph", [&] { writeGraph(out, *this); });
    if (kernelSources)
      out.attributeArray("kernel_sources", [&] { kernelSources(out); });
    out.attribute("kernels", llvm::json::Object{{"before", kernelsBefore}, {"after", kernelsAfter}});
    if (launches)
      out.attributeArray("launches", [&] { launches(out); });
    out.attributeArray("layers", [&] {
      for (const Layer &layer : layers)
        out.value(llvm::json::Object{{"name", layer.name}, {"kernels", layer.kernels}});
    });
    out.attribute("model", model);
    if (!noPlan.empty())
      out.attribute("no_plan", noPlan);
    out.attributeObject("nominal", [&] {
      for (const auto &[symbol, size] : nominal)
        out.attribute(symbol, size);
    });
    out.attributeObject("patterns", [&] { write(out, patterns); });
    out.attribute("profit", profit);
    out.attributeObject("raises", [&] { write(out, raises); });
    out.attribute("target", target);
    out.attributeArray("unmeasured", [&] {
      for (const Miss &miss : unmeasured)
        out.value(llvm::json::Object{{"location", miss.location}, {"reason", miss.reason}});
    });
    out.attribute("unused_features", llvm::json::Array(unusedFeatures));
    out.attribute("version", reportVersion);
  };
  out.object(writeAll);
  return text + "\n";
}

static std::optional<size_t> numberOf(const llvm::json::Object &object, llvm::StringRef key) {
  auto number = object.getInteger(key);
  return number && *number >= 0 ? std::optional(static_cast<size_t>(*number)) : std::nullopt;
}

/// What markdown() needs of the graph: layers, and where nodes are.
static void readGraph(const llvm::json::Object &graph, FusionReport &report) {
  auto each = [&](const char *key, auto &&read) {
    if (const llvm::json::Array *array = graph.getArray(key))
      for (const llvm::json::Value &entry : *array)
        if (const llvm::json::Object *object = entry.getAsObject())
          read(*object);
  };
  FusionReport::Structure &structure = report.structure;
  each("layers", [&](const llvm::json::Object &layer) {
    structure.layers.push_back(layer.getString("name").value_or("").str());
    structure.alike.push_back(numberOf(layer, "like").value_or(0));
  });
  const size_t layers = structure.layers.size();
  each("folds", [&](const llvm::json::Object &object) {
    Fold fold{numberOf(object, "first").value_or(0), numberOf(object, "layers").value_or(1),
              numberOf(object, "times").value_or(1)};
    if (fold.first < layers && fold.layers > 0 && fold.times > 0 && fold.layers <= layers &&
        fold.times <= (layers - fold.first) / fold.layers)
      structure.folds.push_back(fold);
  });
  auto nodes = [&](const char *key, std::vector<FusionReport::Node> &into,
                   std::vector<std::optional<size_t>> &of) {
    each(key, [&](const llvm::json::Object &node) {
      into.emplace_back().location = node.getString("location").value_or("").str();
      auto layer = numberOf(node, "layer");
      of.push_back(layer && *layer < layers ? layer : std::nullopt);
    });
  };
  nodes("before", report.before, structure.before);
  nodes("after", report.after, structure.after);
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
          entry.node = numberOf(site, "node");
          if (const llvm::json::Object *times = site.getObject("microseconds")) {
            entry.fusedTime = times->getNumber("fused").value_or(0);
            entry.unfusedTime = times->getNumber("unfused").value_or(0);
          }
          if (const llvm::json::Array *ops = site.getArray("ops"))
            for (const llvm::json::Value &op : *ops)
              entry.ops.push_back(op.getAsString().value_or("").str());
        });
        entries(*object, "missed", [&](const llvm::json::Object &miss) {
          pattern.missed.push_back({miss.getString("location").value_or("").str(),
                                    miss.getString("reason").value_or("").str(),
                                    miss.getInteger("bytes").value_or(0), numberOf(miss, "node")});
        });
        pattern.applies = object->getBoolean("applies").value_or(true);
      }
    }
  };
  entries(*root, "unmeasured", [&](const llvm::json::Object &miss) {
    report.unmeasured.push_back(
        {miss.getString("location").value_or("").str(), miss.getString("reason").value_or("").str()});
  });
  if (const llvm::json::Object *graph = root->getObject("graph"))
    readGraph(*graph, report);
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

} // namespace fusion
