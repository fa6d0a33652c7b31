// The plan as a drawing: a box a launch, a cluster a layer. Layers that are alike are drawn once.
#include "codegen/plan/Print.h"

#include "ir/base/Layers.h"
#include "ir/base/PlainText.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

namespace fusion {

static std::string dotString(std::string_view text) {
  std::string result = "\"";
  for (char c : plainText(text, std::string::npos))
    result += c == '"' ? "\\\"" : std::string(1, c);
  return result + '"';
}

namespace {
/// Plain ASCII, as all that graphs name.
std::string range(const std::string &first, const std::string &last) { return first + " to " + last; }

class Drawing {
public:
  explicit Drawing(const ProgramPlan &plan) : plan(plan), writer(plan.buffers.size()) {
    for (size_t i = 0; i < plan.inputs.size(); ++i)
      writer[plan.inputs[i].buffer] = {fmt::format("input{}", i), std::nullopt};
    for (const Step &step : plan.steps)
      for (const KernelLaunch &launch : step.alternatives.front().launches) // others do the same
        add(launch);
    layers = findLayers(nodes);
    const std::vector<size_t> alike = alikeLayers(layerLooks(nodes, layers));
    folds = foldLayers(alike);
    foldOf.resize(layers.names.size());
    for (size_t i = 0; i < folds.size(); ++i)
      for (size_t layer = 0; layer < folds[i].layers * folds[i].times; ++layer)
        foldOf[folds[i].first + layer] = i;
    members.resize(layers.names.size());
    place.resize(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i)
      if (auto layer = layers.ofNode[i]) {
        place[i] = members[*layer].size();
        members[*layer].push_back(i);
      }
  }

  std::string text() {
    std::string out = "digraph plan {\n  rankdir=TB;\n  node [shape=box, fontname=\"Helvetica\"];\n"
                      "  graph [fontname=\"Helvetica\", style=rounded, color=\"#98a2b3\"];\n";
    for (size_t i = 0; i < plan.inputs.size(); ++i)
      out += fmt::format("  input{} [shape=ellipse, label={}];\n", i, dotString(plan.inputs[i].name));
    for (size_t i = 0; i < nodes.size(); ++i)
      if (shown(i) == i)
        out += fmt::format("  launch{} [{}label={}];\n", i,
                           launches[i]->fusion.empty() ? "" : "style=filled, fillcolor=\"#dbe9f6\", ",
                           dotString(launchTitle(*launches[i]) +
                                     (launches[i]->location.empty() ? "" : " @ " + launches[i]->location)));
    for (size_t i = 0; i < folds.size(); ++i)
      for (size_t layer = folds[i].first; layer < folds[i].first + folds[i].layers; ++layer)
        out += cluster(layer, folds[i]);
    for (const Edge &edge : edges)
      draw(edge, out);
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      out += fmt::format("  output{} [shape=ellipse, label={}];\n", i, dotString(plan.outputs[i].name));
      const BufferId buffer = plan.outputs[i].buffer;
      if (!writer[buffer].name.empty())
        out += fmt::format("  {} -> output{} [label={}];\n", nameOf(writer[buffer]), i, label(buffer));
    }
    return out + "}\n";
  }

private:
  /// Who wrote a buffer last: an input, or a launch.
  struct Writer {
    std::string name;
    std::optional<size_t> node;
  };
  struct Edge {
    Writer from;
    size_t to;
    BufferId buffer;
  };

  void add(const KernelLaunch &launch) {
    const size_t number = nodes.size();
    LayeredNode node{launchTitle(launch), launch.location, {}};
    auto each = [&](bool written, auto &&act) {
      for (const KernelArgument &argument : launch.arguments)
        if (const BufferId *buffer = bufferOf(argument); buffer && isWritten(argument) == written)
          act(*buffer);
    };
    auto read = [&](BufferId buffer) {
      const Writer &from = writer[buffer];
      if (from.name.empty() || from.node == number)
        return;
      edges.push_back({from, number, buffer});
      if (from.node && std::find(node.inputs.begin(), node.inputs.end(), *from.node) == node.inputs.end())
        node.inputs.push_back(*from.node);
    };
    each(false, read);
    each(true, [&](BufferId buffer) {
      read(buffer);
      writer[buffer] = {fmt::format("launch{}", number), number};
      node.look += " " + typedText(plan.buffers[buffer].type, plan.buffers[buffer].shape);
    });
    nodes.push_back(std::move(node));
    launches.push_back(&launch);
  }

  /// Which stretch of its fold a launch is in; nothing outside of layers and where nothing repeats.
  std::optional<size_t> timeOf(size_t node) const {
    auto layer = layers.ofNode[node];
    if (!layer || folds[foldOf[*layer]].times == 1)
      return std::nullopt;
    const Fold &fold = folds[foldOf[*layer]];
    return (*layer - fold.first) / fold.layers;
  }

  /// The launch that stands for it: the same one of the first layer that is like its own.
  size_t shown(size_t node) const {
    auto time = timeOf(node);
    return time ? members[*layers.ofNode[node] - *time * folds[foldOf[*layers.ofNode[node]]].layers]
                         [place[node]]
                : node;
  }

  std::string nameOf(const Writer &from) const {
    return from.node ? fmt::format("launch{}", shown(*from.node)) : from.name;
  }

  std::string label(BufferId buffer) const {
    return dotString(typedText(plan.buffers[buffer].type, plan.buffers[buffer].shape));
  }

  std::string cluster(size_t layer, const Fold &fold) const {
    std::string title = layers.names[layer];
    if (fold.times > 1)
      title =
          fmt::format("{}: {} alike{}", range(title, layers.names[layer + fold.layers * (fold.times - 1)]),
                      fold.times, fold.layers > 1 ? fmt::format(", every {}th", fold.layers) : "");
    std::string out = fmt::format("  subgraph cluster{} {{ label={};", layer, dotString(title));
    for (size_t node : members[layer])
      out += fmt::format(" launch{};", node);
    return out + " };\n";
  }

  void draw(const Edge &edge, std::string &out) {
    const size_t to = shown(edge.to);
    // From one of the alike layers to the next.
    const bool isCarried = edge.from.node && timeOf(*edge.from.node) && timeOf(edge.to) &&
                           foldOf[*layers.ofNode[*edge.from.node]] == foldOf[*layers.ofNode[edge.to]] &&
                           timeOf(*edge.from.node) != timeOf(edge.to);
    std::string line = fmt::format("  {} -> launch{} [{}label={}];\n", nameOf(edge.from), to,
                                   isCarried ? "style=dashed, constraint=false, " : "", label(edge.buffer));
    if (drawn.insert(line).second)
      out += line;
  }

  const ProgramPlan &plan;
  std::vector<Writer> writer;
  std::vector<LayeredNode> nodes;
  std::vector<const KernelLaunch *> launches;
  std::vector<Edge> edges;
  Layers layers;
  std::vector<Fold> folds;
  std::vector<size_t> foldOf;               ///< by layer
  std::vector<std::vector<size_t>> members; ///< nodes by layer
  std::vector<size_t> place;                ///< of a node in its layer
  std::set<std::string> drawn;
};
} // namespace

std::string planDot(const ProgramPlan &plan) { return Drawing(plan).text(); }

} // namespace fusion
