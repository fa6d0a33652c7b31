// A second compile of the same graph finds plan and report in the cache, and nothing else does.
#include "GraphCase.h"

#include "api/PlanCache.h"
#include "ir/base/Hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace fusion;
using namespace fusion::test;
namespace fs = std::filesystem;

namespace {
class PlanCache : public testing::Test {
protected:
  PlanCache() {
    fs::remove_all(folder);
    fs::create_directories(folder);
    options.device = RunOn::Emulate;
    options.target = {"sm_90a"};
    options.cacheFolder = (folder / "cache").string();
  }
  ~PlanCache() override { fs::remove_all(folder); }

  std::string write(const std::string &name, const std::string &text) const {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }

  Graph load(const std::string &name, const std::string &text) const {
    auto graph = Graph::load(write(name, text));
    EXPECT_TRUE(bool(graph)) << graph.error().message;
    return *graph;
  }

  std::string key(const Graph &graph, const CompileOptions &chosen) const {
    return planKey(graph, chosen, /*mayMeasure=*/false);
  }

  fs::path folder = fs::temp_directory_path() / ("fusion-plans-" + std::to_string(getpid()));
  CompileOptions options;
};

constexpr const char *doubled = R"(
func.func @main(%x: tensor<4x128xf32>, %r: tensor<4x128xf32>, %w: tensor<128xf32>) -> tensor<4x128xf32> {
  %0 = nn.add %x, %r : (tensor<4x128xf32>, tensor<4x128xf32>) -> tensor<4x128xf32>
  %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<4x128xf32>, tensor<128xf32>) -> tensor<4x128xf32>
  return %1 : tensor<4x128xf32>
})";

TEST_F(PlanCache, WhatPatternFilesIncludeIsInTheKey) {
  Graph graph = load("m.mlir", doubled);
  fs::create_directories(folder / "parts");
  options.patternFiles = {write("own.pdll", "#include \"parts/a.pdll\"\n")};
  write("parts/a.pdll", "#include \"b.pdll\"\n");
  EXPECT_EQ(key(graph, options), ""); // parts/b.pdll is not there
  write("parts/b.pdll", "// one\n");
  const std::string before = key(graph, options);
  EXPECT_NE(before, "");
  EXPECT_EQ(key(graph, options), before);
  write("parts/b.pdll", "// two\n");
  EXPECT_NE(key(graph, options), before);
  write("parts/b.pdll", "#include \"a.pdll\"\n"); // in a circle
  EXPECT_NE(key(graph, options), "");
}

TEST_F(PlanCache, AWarmStartReplaysThePlanAndTheReport) {
  Graph graph = load("m.mlir", doubled);
  KernelCache cache(options.cacheFolder);
  EXPECT_FALSE(cachedPlan(cache, key(graph, options)));
  auto cold = compile(graph, options);
  ASSERT_TRUE(bool(cold)) << cold.error().message;
  EXPECT_EQ(cold->report().fired("add_norm"), 1);
  auto warm = compile(*Graph::load((folder / "m.mlir").string()), options);
  ASSERT_TRUE(bool(warm)) << warm.error().message;
  EXPECT_EQ(warm->report().json(), cold->report().json());
  EXPECT_EQ(warm->cudaSource(), cold->cudaSource());
  // That it is replayed, and not made again, shows when the entry says something else.
  auto plan = cachedPlan(cache, key(graph, options));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->report, cold->report().json());
  plan->report = R"({"patterns": {"add_norm": {"fired": 7, "sites": [{}, {}, {}, {}, {}, {}, {}]}}})";
  storePlan(cache, key(graph, options), *plan);
  warm = compile(graph, options);
  ASSERT_TRUE(bool(warm)) << warm.error().message;
  EXPECT_EQ(warm->report().fired("add_norm"), 7);
}

TEST_F(PlanCache, TheKeyHasAllThatThePlanDependsOn) {
  Graph graph = load("m.mlir", doubled);
  std::string same = key(graph, options);
  ASSERT_FALSE(same.empty());
  EXPECT_EQ(key(*Graph::load((folder / "m.mlir").string()), options), same);
  std::string other = doubled;
  other.replace(other.find("e-6"), 3, "e-5");
  EXPECT_NE(key(load("n.mlir", other), options), same);
  CompileOptions changed = options;
  changed.fuse = false;
  EXPECT_NE(key(graph, changed), same);
  changed = options;
  changed.disabledFusions = {"add_norm"};
  EXPECT_NE(key(graph, changed), same);
  changed = options;
  changed.target = {"sm_80"};
  EXPECT_NE(key(graph, changed), same);
  changed = options;
  changed.patternFiles = {write("p.pdll", "one")};
  std::string first = key(graph, changed);
  EXPECT_NE(first, same);
  write("p.pdll", "two");
  EXPECT_NE(key(graph, changed), first);
  changed.patternFiles = {"no/such/file.pdll"};
  EXPECT_EQ(key(graph, changed), "");
}

TEST_F(PlanCache, LocationsArePartOfTheReportAndOfTheKey) {
  std::string text = doubled;
  size_t at = text.find("tensor<4x128xf32>\n", text.find("rms_norm"));
  std::string here = text, there = text;
  here.insert(at + 17, " loc(\"model.layers.0.norm\")");
  there.insert(at + 17, " loc(\"model.layers.1.norm\")");
  std::string first = key(load("m.mlir", here), options);
  EXPECT_NE(key(load("m.mlir", there), options), first);
}

TEST_F(PlanCache, ADamagedEntryIsMadeAgain) {
  Graph graph = load("m.mlir", doubled);
  auto cold = compile(graph, options);
  ASSERT_TRUE(bool(cold)) << cold.error().message;
  std::string hash = contentHash(key(graph, options));
  fs::path entry = fs::path(options.cacheFolder) / hash.substr(0, 2) / hash.substr(2);
  fs::resize_file(entry, fs::file_size(entry) / 2);
  testing::internal::CaptureStderr();
  auto again = compile(graph, options);
  std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(bool(again)) << again.error().message;
  EXPECT_THAT(said, testing::HasSubstr("is damaged"));
  EXPECT_EQ(again->report().json(), cold->report().json());
  // Whole, but no plan.
  KernelCache cache(options.cacheFolder);
  cache.put(key(graph, options), "{}");
  again = compile(graph, options);
  ASSERT_TRUE(bool(again)) << again.error().message;
  EXPECT_EQ(again->report().json(), cold->report().json());
}
} // namespace
