#include "api/HtmlReport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fusion {

namespace {
constexpr int rowHeight = 46, boxHeight = 26, gap = 14, letterWidth = 7;

std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text)
    switch (c) {
    case '<': out += "&lt;"; break;
    case '>': out += "&gt;"; break;
    case '&': out += "&amp;"; break;
    case '"': out += "&quot;"; break;
    default:
      // XML has no way to write other control characters.
      if (static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\t')
        out += c;
    }
  return out;
}

std::string withoutDialect(std::string label) {
  for (size_t at; (at = label.find("nn.")) != std::string::npos;)
    label.erase(at, 3);
  return label;
}

/// A hue of its own for every fusion, spread by the golden angle.
std::string colour(const std::map<std::string, size_t> &order, const std::string &fusion) {
  return fmt::format("hsl({:.0f} 70% 78%)", static_cast<double>(order.at(fusion)) * 137.5);
}

/// Layers that are drawn, and for each how many others look the same.
std::map<std::string, size_t> distinctLayers(const std::vector<FusionReport::Node> &nodes) {
  std::map<std::string, std::string> looks;
  std::vector<std::string> order;
  for (const FusionReport::Node &node : nodes) {
    if (node.layer.empty())
      continue;
    auto [look, fresh] = looks.try_emplace(node.layer);
    if (fresh)
      order.push_back(node.layer);
    look->second += node.label + '|' + node.fusion + '\n';
  }
  std::map<std::string, std::string> firstOfLook;
  std::map<std::string, size_t> drawn;
  for (const std::string &layer : order) {
    auto [first, fresh] = firstOfLook.try_emplace(looks[layer], layer);
    ++drawn.try_emplace(first->second, 0).first->second;
  }
  return drawn;
}

struct Box {
  const FusionReport::Node *node = nullptr;
  std::string text;
  int row = 0, x = 0, width = 0;
  int middle() const { return x + width / 2; }
};

/// Layered from the top: a node lies below all that it reads, near the middle of them.
class Drawing {
public:
  Drawing(const std::vector<FusionReport::Node> &nodes, const std::map<std::string, size_t> &colours) : colours(colours) {
    std::map<std::string, size_t> layers = distinctLayers(nodes);
    for (auto &[layer, count] : layers)
      if (count > 1)
        alike += fmt::format("{} other layers look like {}. ", count - 1, layer);
    boxes.resize(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].layer.empty() || layers.count(nodes[i].layer))
        place(i, nodes[i]);
    spread();
  }

  std::string svg() const {
    std::string out = fmt::format("<p>{}</p>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\">\n",
                                  escaped(alike), right + gap, static_cast<int>(rows.size()) * rowHeight + gap);
    for (const Box &box : boxes)
      if (box.node)
        for (size_t input : box.node->inputs)
          if (const Box &from = boxes[input]; from.node)
            out += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", from.middle(),
                               top(from) + boxHeight, box.middle(), top(box));
    for (const Box &box : boxes)
      if (box.node)
        out += drawn(box);
    return out + "</svg>\n";
  }

private:
  static int top(const Box &box) { return box.row * rowHeight + gap; }

  void place(size_t index, const FusionReport::Node &node) {
    Box &box = boxes[index];
    box.node = &node;
    box.text = withoutDialect(node.label);
    box.width = static_cast<int>(box.text.size()) * letterWidth + 2 * gap;
    // What reads a layer that is left out comes below those that are not.
    for (size_t input : node.inputs)
      box.row = std::max(box.row, boxes[input].node ? boxes[input].row + 1 : static_cast<int>(rows.size()));
    rows.resize(std::max(rows.size(), static_cast<size_t>(box.row) + 1));
    rows[static_cast<size_t>(box.row)].push_back(index);
  }

  void spread() {
    for (std::vector<size_t> &row : rows) {
      for (size_t index : row) {
        Box &box = boxes[index];
        int sum = 0, count = 0;
        for (size_t input : box.node->inputs)
          if (boxes[input].node) {
            sum += boxes[input].middle();
            ++count;
          }
        box.x = count ? std::max(gap, sum / count - box.width / 2) : gap;
      }
      std::stable_sort(row.begin(), row.end(), [&](size_t a, size_t b) { return boxes[a].x < boxes[b].x; });
      int from = gap;
      for (size_t index : row) {
        boxes[index].x = std::max(boxes[index].x, from);
        from = boxes[index].x + boxes[index].width + gap;
        right = std::max(right, from);
      }
    }
  }

  std::string drawn(const Box &box) const {
    const FusionReport::Node &node = *box.node;
    std::string title = node.label + "\n" + node.location;
    if (!node.fusion.empty())
      title += "\nfused: " + node.fusion;
    for (const std::string &miss : node.missed)
      title += "\nmissed " + miss;
    const char *kind = !node.missed.empty() && node.fusion.empty() ? "missed" : "op";
    std::string fill = node.fusion.empty() ? "#fff" : colour(colours, node.fusion);
    std::string out = fmt::format(
        "<g class=\"{}\"><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>",
        kind, escaped(title), box.x, top(box), box.width, boxHeight, fill, box.middle(), top(box) + 17,
        escaped(box.text));
    if (!node.missed.empty())
      out += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"4\"/>", box.x + box.width, top(box));
    return out + "</g>\n";
  }

  const std::map<std::string, size_t> &colours;
  std::vector<Box> boxes;
  std::vector<std::vector<size_t>> rows;
  std::string alike;
  int right = 0;
};

std::string tables(const FusionReport &report, const std::map<std::string, size_t> &colours) {
  std::string out = "<h2>Fusions</h2>\n<table><tr><th>fusion</th><th>fired</th><th>missed</th></tr>\n";
  for (const auto &[name, pattern] : report.patterns)
    out += fmt::format("<tr><td style=\"background:{}\">{}</td><td>{}</td><td>{}</td></tr>\n", colour(colours, name),
                       escaped(name), pattern.fired.size(), pattern.missed.size());
  out += "</table>\n<h2>Sites</h2>\n<table><tr><th>fusion</th><th>location</th><th></th><th>what</th></tr>\n";
  for (const auto *patterns : {&report.patterns, &report.raises})
    for (const auto &[name, pattern] : *patterns) {
      for (const FusionReport::Site &site : pattern.fired) {
        std::string ops;
        for (const std::string &op : site.ops)
          ops += (ops.empty() ? "" : " → ") + op;
        std::string saved =
            patterns == &report.raises ? "" : fmt::format(", {} bytes saved", site.bytesSaved);
        if (!site.assumes.empty())
          saved += ": " + escaped(site.assumes);
        out += fmt::format("<tr><td>{}</td><td>{}</td><td>fired</td><td>{}{}</td></tr>\n", escaped(name),
                           escaped(site.location), escaped(ops), saved);
      }
      for (const FusionReport::Miss &miss : pattern.missed)
        out += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"why\">missed</td><td>{}</td></tr>\n", escaped(name),
                           escaped(miss.location), escaped(miss.reason));
    }
  out += "</table>\n";
  if (report.layers.empty())
    return out;
  out += "<h2>Kernels by layer</h2>\n<table><tr><th>layer</th><th>kernels</th></tr>\n";
  for (const FusionReport::Layer &layer : report.layers)
    out += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escaped(layer.name), layer.kernels);
  return out + "</table>\n";
}
} // namespace

std::string htmlReport(const FusionReport &report) {
  std::map<std::string, size_t> colours;
  for (const auto &[name, pattern] : report.patterns)
    colours.emplace(name, colours.size());
  std::string out = fmt::format(R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"/><title>Fusion report</title><style>
body {{ font: 14px sans-serif; margin: 24px; }}
table {{ border-collapse: collapse; }}
td, th {{ border: 1px solid #ccc; padding: 3px 8px; text-align: left; }}
.graph {{ overflow: auto; max-height: 80vh; border: 1px solid #ccc; }}
svg line {{ stroke: #aaa; }}
svg rect {{ stroke: #555; }}
svg text {{ font: 12px monospace; text-anchor: middle; }}
svg circle {{ fill: #d00; }}
.missed rect {{ stroke: #d00; stroke-dasharray: 4 2; }}
.why {{ color: #b00; }}
</style></head><body>
<h1>Fusion report: {} ({})</h1>
<p>Kernels {} → {}, memory traffic {} → {} bytes.{}{}
Each colour is a fusion; a red dot is something missed, with the reason when the pointer rests on it.</p>
)",
                                escaped(report.model), escaped(report.target), report.kernelsBefore,
                                report.kernelsAfter, report.bytesBefore, report.bytesAfter,
                                report.unusedFeatures.empty()
                                    ? ""
                                    : escaped(fmt::format(" Features of the target that no kernel uses yet: {}.",
                                                          fmt::join(report.unusedFeatures, ", "))),
                                report.noPlan.empty() ? ""
                                                      : fmt::format("<br><b class=\"why\">No GPU plan: {}</b><br>",
                                                                    escaped(report.noPlan)));
  for (const auto *nodes : {&report.before, &report.after})
    if (!nodes->empty())
      out += fmt::format("<h2>{}</h2>\n<div class=\"graph\">{}</div>\n",
                         nodes == &report.before ? "Before" : "After", Drawing(*nodes, colours).svg());
  return out + tables(report, colours) + "</body></html>\n";
}

} // namespace fusion
