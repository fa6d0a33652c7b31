#include "runtime/Profile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <vector>

using namespace fusion;

namespace {
const DevicePeaks peaks = {4000, 8000, "a made-up GPU"};
const DevicePeaks unknown = {0, 0, "host times"};

std::vector<nlohmann::json> track(const nlohmann::json &trace, int number) {
  std::vector<nlohmann::json> events;
  for (const auto &event : trace["traceEvents"])
    if (event["ph"] == "X" && event["tid"] == number)
      events.push_back(event);
  return events;
}
} // namespace

TEST(Profile, TheLimitIsTheLargerOfMovingAndComputing) {
  EXPECT_EQ(leastMicroseconds(8000, 8000, peaks), 2);
  EXPECT_EQ(leastMicroseconds(4000, 32000, peaks), 4);
  EXPECT_EQ(leastMicroseconds(4000, 32000, unknown), 0);
}

TEST(Profile, TableSumsCallsSlowestFirst) {
  std::vector<LaunchTiming> timings = {{"fast", "row", "", "a", 1, 1000, 0},
                                       {"slow", "row", "add_norm", "b", 5, 5000, 10},
                                       {"fast", "row", "", "c", 2, 5000, 0}};
  std::string table = profileTable(timings, peaks);
  EXPECT_EQ(table.find("a made-up GPU\n"), 0u);
  EXPECT_LT(table.find("slow"), table.find("fast"));
  EXPECT_NE(table.find("slow add_norm "), std::string::npos);
  EXPECT_NE(table.find("total"), std::string::npos);
  EXPECT_NE(table.find("8.0"), std::string::npos) << table;
  EXPECT_NE(table.find(" 25 %"), std::string::npos) << table; // slow: 1.25 of 5 us
  EXPECT_NE(table.find(" 50 %"), std::string::npos) << table; // fast: 0.25 + 1.25 of 3 us
  EXPECT_EQ(profileTable(timings, unknown).find(" %\n"), std::string::npos);
}

TEST(Profile, NothingLaunchedIsATableOfZeros) {
  EXPECT_NE(profileTable({}, peaks).find("total"), std::string::npos);
  EXPECT_TRUE(track(nlohmann::json::parse(chromeTrace({}, peaks)), 2).empty());
}

TEST(Profile, TraceHasOneEventALaunch) {
  std::vector<LaunchTiming> timings = {{"k", "row", "f", "layer", 1.5, 8000, 0},
                                       {"k", "row", "", "", 2, 8, 0}};
  auto trace = nlohmann::json::parse(chromeTrace(timings, peaks));
  auto kernels = track(trace, 2);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[1]["ts"], 1.5);
  EXPECT_EQ(kernels[1]["dur"], 2);
  EXPECT_EQ(kernels[0]["args"]["location"], "layer");
  EXPECT_EQ(kernels[0]["args"]["least_us"], 2);
  EXPECT_EQ(trace["otherData"]["limits"], "a made-up GPU");
}

TEST(Profile, TraceNestsTheLayers) {
  std::vector<LaunchTiming> timings = {{"a", "row", "", "model.layers.0.norm", 1, 0, 0},
                                       {"b", "matmul", "", "model.layers.0.mlp.up", 2, 0, 0},
                                       {"c", "row", "", "", 4, 0, 0},
                                       {"d", "row", "", "model.layers.1", 8, 0, 0},
                                       {"e", "row", "", "model.layers.1.norm", 16, 0, 0}};
  auto layers = track(nlohmann::json::parse(chromeTrace(timings, peaks)), 1);
  std::vector<std::string> found;
  for (const auto &event : layers)
    found.push_back(event["name"].get<std::string>() + " " + std::to_string(event["ts"].get<int>()) + "+" +
                    std::to_string(event["dur"].get<int>()));
  EXPECT_EQ(found, (std::vector<std::string>{"model 0+3", "layers.0 0+3", "norm 0+1", "mlp 1+2", "up 1+2",
                                             "model 7+24", "layers.1 7+24", "norm 15+16"}));
}
