#include "ir/base/Layers.h"
#include "ir/base/Units.h"

#include <gmock/gmock.h>

namespace fusion {
namespace {
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Fold> folded(std::vector<size_t> alike) { return foldLayers(alike); }

TEST(Layers, NameEndsWithTheFirstNumber) {
  EXPECT_EQ(layerOf("model.layers.12.self_attn.3"), "model.layers.12");
  EXPECT_EQ(layerOf("0.mlp"), "0");
  EXPECT_EQ(layerOf("model.norm1"), "");
  EXPECT_EQ(layerOf("model..1x.12345678901234"), ""); // no number that fits
  EXPECT_EQ(layerOf(""), "");
}

TEST(Layers, RepeatedLayersFold) {
  EXPECT_THAT(folded({0, 0, 0, 3}), ElementsAre(Fold{0, 1, 3}, Fold{3, 1, 1}));
  EXPECT_THAT(folded({0, 0, 2, 0, 0, 2, 0}), ElementsAre(Fold{0, 3, 2}, Fold{6, 1, 1}));
  EXPECT_THAT(folded({0, 1, 1, 1, 1}), ElementsAre(Fold{0, 1, 1}, Fold{1, 1, 4}));
  EXPECT_THAT(folded({}), IsEmpty());
}

/// Two ops a layer, the second of which reads the first and, with `skips`, what is before the layer.
std::vector<LayeredNode> chain(size_t layers, bool named, bool skips = false) {
  std::vector<LayeredNode> nodes{{"embed", "embed", {}}};
  for (size_t i = 0; i < layers; ++i) {
    const std::string scope = named ? "h." + std::to_string(i) : "";
    for (std::string op : {"norm", "matmul", "gelu", "matmul", "add"}) {
      nodes.push_back({op, named ? scope + "." + op : "", {nodes.size() - 1}});
      if (op == "add" && skips)
        nodes.back().inputs.push_back(nodes.size() - 6);
    }
  }
  nodes.push_back({"head", "head", {nodes.size() - 1}});
  return nodes;
}

TEST(Layers, ByName) {
  std::vector<LayeredNode> nodes = chain(3, true);
  nodes[2].location.clear(); // read by the layer alone, and reads it: the layer's
  const Layers layers = findLayers(nodes);
  EXPECT_THAT(layers.names, ElementsAre("h.0", "h.1", "h.2"));
  EXPECT_EQ(layers.ofNode[2], 0u);
  EXPECT_EQ(layers.ofNode.front(), std::nullopt);
  EXPECT_EQ(layers.ofNode.back(), std::nullopt);
  EXPECT_THAT(alikeLayers(layerLooks(nodes, layers)), ElementsAre(0, 0, 0));
}

TEST(Layers, ByStructureWhereNamesTellNothing) {
  const std::vector<LayeredNode> nodes = chain(4, false, true);
  const Layers layers = findLayers(nodes);
  ASSERT_EQ(layers.names.size(), 4u);
  EXPECT_EQ(layers.names[3], "repeat 3");
  for (size_t i = 1; i + 1 < nodes.size(); ++i)
    EXPECT_EQ(layers.ofNode[i], (i - 1) / 5) << i;
  EXPECT_EQ(layers.ofNode.back(), std::nullopt);
  EXPECT_THAT(findLayers(chain(1, false)).names, IsEmpty());
  EXPECT_THAT(findLayers({}).names, IsEmpty());
}

TEST(Layers, WhatReadsOtherOpsIsNotAlike) {
  std::vector<LayeredNode> nodes = chain(3, true);
  nodes[9].inputs = {6}; // in h.1 the second matmul reads the norm
  const Layers layers = findLayers(nodes);
  EXPECT_THAT(alikeLayers(layerLooks(nodes, layers)), ElementsAre(0, 1, 0));
}

TEST(Units, ThreeDigits) {
  EXPECT_EQ(bytesText(0), "0 bytes");
  EXPECT_EQ(bytesText(1), "1 byte");
  EXPECT_EQ(bytesText(1023), "1023 bytes");
  EXPECT_EQ(bytesText(1536), "1.5 KiB");
  EXPECT_EQ(bytesText(425984), "416 KiB");
  EXPECT_EQ(bytesText((1 << 20) - 1), "1 MiB"); // not 1024 KiB
  EXPECT_EQ(bytesText(4027712), "3.84 MiB");
  EXPECT_EQ(bytesText(int64_t(3) << 40), "3 TiB");
  EXPECT_EQ(bytesText(-2048), "-2 KiB");
  EXPECT_EQ(microsecondsText(3.117), "3.12 µs");
  EXPECT_EQ(microsecondsText(1500), "1.5 ms");
}
} // namespace
} // namespace fusion
