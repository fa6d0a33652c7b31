// The table of architectures, and that nothing else compares their numbers.
#include "codegen/target/TargetInfo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

using namespace fusion;

TEST(TargetInfo, NamesAndSuffixes) {
  for (const char *name : {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"}) {
    auto info = TargetInfo::find(name);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->name, name);
    EXPECT_GT(info->multiprocessors, 0);
    EXPECT_GT(info->sharedBytesPerMultiprocessor, info->sharedBytesPerBlock);
    EXPECT_FALSE(info->atoms.empty());
  }
  EXPECT_EQ(TargetInfo::find("sm_90")->name, "sm_90a");
  EXPECT_EQ(TargetInfo::find("sm_100")->name, "sm_100");
  EXPECT_EQ(TargetInfo::find("sm_100f")->name, "sm_100f");
  for (const std::string &name : TargetInfo::all())
    EXPECT_EQ(TargetInfo::find(name)->name, name);
}

TEST(TargetInfo, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char *name :
       {"", "sm_", "90", "sm_75", "sm_900", "sm_80a", "sm_90f", "sm_90ab", "sm_-90", "hopper"}) {
    auto info = TargetInfo::find(name);
    ASSERT_FALSE(info) << name;
    EXPECT_NE(info.error().message.find("sm_90a"), std::string::npos);
    EXPECT_NE(info.error().message.find("sm_120a"), std::string::npos);
    EXPECT_NE(info.error().message.find("'" + std::string(name) + "'"), std::string::npos);
  }
}

TEST(TargetInfo, FeaturesOfTheFamilyNeedTheSuffix) {
  EXPECT_TRUE(TargetInfo::find("sm_100a")->has(Feature::Tcgen05));
  EXPECT_TRUE(TargetInfo::find("sm_100f")->has(Feature::Tcgen05));
  EXPECT_FALSE(TargetInfo::find("sm_100")->has(Feature::Tcgen05));
  EXPECT_TRUE(TargetInfo::find("sm_100")->has(Feature::Clusters));
  EXPECT_TRUE(TargetInfo::find("sm_90")->has(Feature::Wgmma));
  EXPECT_FALSE(TargetInfo::find("sm_100a")->has(Feature::Wgmma));
  EXPECT_TRUE(TargetInfo::find("sm_100a")->has(Feature::Tcgen05Integers)); // which is no family's
  EXPECT_FALSE(TargetInfo::find("sm_100f")->has(Feature::Tcgen05Integers));
  EXPECT_FALSE(TargetInfo::find("sm_103a")->has(Feature::Tcgen05Integers));
  EXPECT_TRUE(TargetInfo::find("sm_103a")->has(Feature::Tcgen05));
  EXPECT_FALSE(TargetInfo::find("sm_80")->has(Feature::Clusters));
}

TEST(TargetInfo, WhereCubinsRun) {
  EXPECT_TRUE(TargetInfo::find("sm_80")->runsOn(8, 9));
  EXPECT_FALSE(TargetInfo::find("sm_89")->runsOn(8, 0));
  EXPECT_FALSE(TargetInfo::find("sm_80")->runsOn(9, 0));
  EXPECT_TRUE(TargetInfo::find("sm_90a")->runsOn(9, 0));
  EXPECT_FALSE(TargetInfo::find("sm_90a")->runsOn(10, 0));
  EXPECT_TRUE(TargetInfo::find("sm_100")->runsOn(10, 3));
  EXPECT_FALSE(TargetInfo::find("sm_100a")->runsOn(10, 3));
}

TEST(TargetInfo, DevicesWithoutARowGetTheNewestOlderOne) {
  EXPECT_EQ(TargetInfo::ofDevice(9, 0).name, "sm_90a");
  const TargetInfo newer = TargetInfo::ofDevice(15, 3);
  EXPECT_EQ(newer.name, "sm_153");
  EXPECT_TRUE(newer.has(Feature::Clusters));
  EXPECT_FALSE(newer.has(Feature::Wgmma));
  EXPECT_FALSE(newer.has(Feature::Tcgen05));
}

TEST(TargetInfo, SaysWhatNoKernelUsesYet) {
  const std::vector<std::string_view> unused = TargetInfo::find("sm_100a")->unusedFeatures();
  EXPECT_NE(std::find(unused.begin(), unused.end(), "f4 conversions"), unused.end());
  EXPECT_TRUE(TargetInfo::find("sm_80")->unusedFeatures().empty());
}

TEST(TargetInfo, WhatSchedulesAskForIsUsed) {
  namespace files = std::filesystem;
  const std::pair<const char *, Feature> features[] = {
      {"Clusters", Feature::Clusters},         {"Tma", Feature::Tma},
      {"TmaMulticast", Feature::TmaMulticast}, {"Wgmma", Feature::Wgmma},
      {"Tcgen05", Feature::Tcgen05},           {"BlockScaledMma", Feature::BlockScaledMma}};
  std::string text;
  for (const auto &entry : files::directory_iterator(FUSION_SOURCE_DIR "/codegen/schedule")) {
    std::ifstream file(entry.path());
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  size_t found = 0;
  for (const auto &[name, feature] : features) {
    const std::string asked = std::string("has(Feature::") + name + ")";
    if (text.find(asked) == std::string::npos)
      continue;
    ++found;
    for (const char *target : {"sm_90a", "sm_100a", "sm_120a"}) {
      const std::vector<std::string_view> unused = TargetInfo::find(target)->unusedFeatures();
      EXPECT_EQ(std::find(unused.begin(), unused.end(), featureName(feature)), unused.end()) << name;
    }
  }
  EXPECT_GE(found, 3u);
}

TEST(TargetInfo, ClustersAreNeighbours) {
  TargetInfo info = TargetInfo::standard();
  for (int64_t together : {1, 2})
    for (int64_t blocks = 1; blocks <= 8; ++blocks)
      EXPECT_LE(info.clustersAtOnce(blocks, together) * blocks, together * info.multiprocessors);
  EXPECT_EQ(info.clustersAtOnce(3, 1), 39);
  EXPECT_EQ(info.clustersAtOnce(5, 2), 47);
  info.multiprocessors /= 2; // a part of a device
  EXPECT_EQ(info.clustersAtOnce(3, 1), 19);
}

/// Lines that compare architecture numbers or know an architecture's sizes.
TEST(TargetInfo, NoOtherFileKnowsAnArchitecture) {
  namespace files = std::filesystem;
  const std::regex knows(
      R"((\barch|\bmajor|\bminor|__CUDA_ARCH__)\w*\s*(==|!=|<=|>=|<|>)\s*"?\d)"
      R"(|==\s*"sm_|\b(99|100|163|164|227|228)\s*(\*\s*1024|<<\s*10)|[=<>*/]\s*132\b|\b132\s*[*/<>])");
  size_t seen = 0;
  for (const char *room : {"api", "codegen", "passes", "patterns", "runtime", "tools"})
    for (const auto &entry :
         files::recursive_directory_iterator(std::string(FUSION_SOURCE_DIR) + "/" + room)) {
      const files::path &path = entry.path();
      const std::string extension = path.extension();
      if ((extension != ".cpp" && extension != ".h" && extension != ".cuh") ||
          path.filename() == "TargetInfo.cpp" || path.filename() == "features.cuh")
        continue;
      ++seen;
      std::ifstream file(path);
      std::string line;
      for (size_t number = 1; std::getline(file, line); ++number)
        EXPECT_FALSE(std::regex_search(line, knows)) << path.string() << ":" << number << ": " << line;
    }
  EXPECT_GT(seen, 100u);
  EXPECT_TRUE(std::regex_search(std::string("if (arch >= 90)"), knows));
  EXPECT_TRUE(std::regex_search(std::string("constexpr int processors = 132;"), knows));
}
