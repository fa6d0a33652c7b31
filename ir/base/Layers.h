// Which parts of a graph repeat: its layers, and which of them are alike.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fusion {

/// `model.layers.0` of `model.layers.0.self_attn.q_proj`; empty if no part of the path is a number.
std::string layerOf(std::string_view location);

/// One op of a graph, in the order in which they run.
struct LayeredNode {
  std::string look;           ///< equal for ops that do the same: kinds, types
  std::string location;       ///< model.layers.0.self_attn, or empty
  std::vector<size_t> inputs; ///< nodes before it
};

struct Layers {
  std::vector<std::string> names;            ///< in the order of their first nodes
  std::vector<std::optional<size_t>> ofNode; ///< the layer of each node, or nothing
};

/// By the names in the locations; where they name no two layers, by the longest stretch of nodes that
/// repeats, whose layers are named `repeat 0`, `repeat 1`, …
Layers findLayers(std::span<const LayeredNode> nodes);

/// For each layer its nodes and which of each other they read: equal for layers that are alike.
std::vector<std::string> layerLooks(std::span<const LayeredNode> nodes, const Layers &layers);

/// For each layer the first one with the same look.
std::vector<size_t> alikeLayers(std::span<const std::string> looks);

/// `times` stretches of `layers` layers each, from layer `first` on, of which each is like the first.
struct Fold {
  size_t first = 0, layers = 1, times = 1;
  friend bool operator==(const Fold &, const Fold &) = default;
};
/// All layers in order, with as much repeated as can be: A A A B is 3 × A, then B; A A B A A B is 2 × (A A
/// B).
std::vector<Fold> foldLayers(std::span<const size_t> alike);

} // namespace fusion
