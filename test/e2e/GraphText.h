// Graphs that a test writes as MLIR text.
#pragma once

#include "api/Fusion.h"

#include <gtest/gtest.h>

#include <span>

namespace fusion::test {

inline Graph parseGraph(const std::string &text) {
  auto graph = Graph::load(ModelBytes{std::as_bytes(std::span(text)), nullptr, "test.mlir"});
  EXPECT_TRUE(bool(graph)) << graph.error().message << text;
  return *graph;
}

} // namespace fusion::test
