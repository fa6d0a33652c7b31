#include "ir/base/Layers.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

namespace fusion {

std::string layerOf(std::string_view location) {
  for (size_t begin = 0; begin <= location.size();) {
    const size_t end = std::min(location.find('.', begin), location.size());
    unsigned number;
    auto [stop, error] = std::from_chars(location.data() + begin, location.data() + end, number);
    if (end > begin && error == std::errc() && stop == location.data() + end)
      return std::string(location.substr(0, end));
    begin = end + 1;
  }
  return {};
}

namespace {
constexpr size_t shortestRepeat = 4; ///< ops of a layer that only structure tells
constexpr size_t mostPeriods = 16, longestBlock = 32;

Layers namedLayers(std::span<const LayeredNode> nodes) {
  Layers layers;
  std::unordered_map<std::string, size_t> known;
  layers.ofNode.resize(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::string name = layerOf(nodes[i].location);
    if (name.empty())
      continue;
    auto [entry, fresh] = known.try_emplace(name, layers.names.size());
    if (fresh)
      layers.names.push_back(std::move(name));
    layers.ofNode[i] = entry->second;
  }
  return layers;
}

/// A node without a name belongs to a layer if only that layer reads it, and it reads something of that
/// layer.
void adopt(std::span<const LayeredNode> nodes, Layers &layers) {
  std::vector<std::vector<size_t>> users(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i)
    for (size_t input : nodes[i].inputs)
      users[input].push_back(i);
  for (size_t i = nodes.size(); i-- > 0;) {
    if (layers.ofNode[i] || users[i].empty())
      continue;
    const std::optional<size_t> layer = layers.ofNode[users[i].front()];
    auto isInside = [&](size_t node) { return layer && layers.ofNode[node] == layer; };
    if (std::all_of(users[i].begin(), users[i].end(), isInside) &&
        std::any_of(nodes[i].inputs.begin(), nodes[i].inputs.end(), isInside))
      layers.ofNode[i] = layer;
  }
}

/// Nodes from `begin` on that look the same as those `period` further, `times` periods in all.
struct Stretch {
  size_t begin = 0, period = 0, times = 0;
};

Stretch longestStretch(const std::vector<size_t> &looks, size_t period) {
  Stretch best{0, period, 0};
  for (size_t i = 0, begin = 0; i + period <= looks.size(); ++i) {
    if (i + period < looks.size() && looks[i] == looks[i + period])
      continue;
    if (size_t times = (i - begin) / period + 1; times > 1 && times > best.times)
      best = {begin, period, times};
    begin = i + 1;
  }
  return best;
}

Layers repeatedLayers(std::span<const LayeredNode> nodes) {
  std::unordered_map<std::string_view, size_t> known, last;
  std::vector<size_t> looks;
  std::map<size_t, size_t> distances; // of a node to the one before that looks the same
  for (size_t i = 0; i < nodes.size(); ++i) {
    looks.push_back(known.try_emplace(nodes[i].look, known.size()).first->second);
    auto [before, fresh] = last.try_emplace(nodes[i].look, i);
    if (!fresh && i - before->second >= shortestRepeat)
      ++distances[i - before->second];
    before->second = i;
  }
  std::vector<std::pair<size_t, size_t>> frequent;
  for (auto [distance, count] : distances)
    frequent.emplace_back(count, distance);
  std::stable_sort(frequent.begin(), frequent.end(), [](auto a, auto b) { return a.first > b.first; });
  Stretch best;
  for (size_t i = 0; i < std::min(frequent.size(), mostPeriods); ++i)
    if (Stretch found = longestStretch(looks, frequent[i].second);
        found.times * found.period > best.times * best.period)
      best = found;
  Layers layers;
  layers.ofNode.resize(nodes.size());
  for (size_t time = 0; time < best.times; ++time)
    layers.names.push_back("repeat " + std::to_string(time));
  for (size_t i = 0; i < best.times * best.period; ++i)
    layers.ofNode[best.begin + i] = i / best.period;
  return layers;
}
} // namespace

Layers findLayers(std::span<const LayeredNode> nodes) {
  Layers layers = namedLayers(nodes);
  if (layers.names.size() < 2)
    if (Layers repeated = repeatedLayers(nodes); !repeated.names.empty())
      return repeated;
  adopt(nodes, layers);
  return layers;
}

std::vector<std::string> layerLooks(std::span<const LayeredNode> nodes, const Layers &layers) {
  std::vector<std::string> looks(layers.names.size());
  std::vector<size_t> place(nodes.size()), count(layers.names.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!layers.ofNode[i])
      continue;
    const size_t layer = *layers.ofNode[i];
    place[i] = count[layer]++;
    std::string &look = looks[layer] += nodes[i].look;
    for (size_t input : nodes[i].inputs)
      look += layers.ofNode[input] == layer ? " " + std::to_string(place[input]) : " -";
    look += '\n';
  }
  return looks;
}

std::vector<size_t> alikeLayers(std::span<const std::string> looks) {
  std::unordered_map<std::string_view, size_t> first;
  std::vector<size_t> alike;
  for (size_t i = 0; i < looks.size(); ++i)
    alike.push_back(first.try_emplace(looks[i], i).first->second);
  return alike;
}

std::vector<Fold> foldLayers(std::span<const size_t> alike) {
  std::vector<Fold> folds;
  for (size_t at = 0; at < alike.size();) {
    Fold best{at, 1, 1};
    for (size_t layers = 1; layers <= std::min(longestBlock, (alike.size() - at) / 2); ++layers) {
      size_t same = 0;
      while (at + same + layers < alike.size() && alike[at + same] == alike[at + same + layers])
        ++same;
      const size_t times = same / layers + 1;
      if (times > 1 && times * layers > best.times * best.layers)
        best = {at, layers, times};
    }
    folds.push_back(best);
    at += best.layers * best.times;
  }
  return folds;
}

} // namespace fusion
