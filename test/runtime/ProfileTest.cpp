#include "runtime/Profile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <vector>

using namespace fusion;

TEST(Profile, TableSumsCallsSlowestFirst) {
  std::vector<LaunchTiming> timings = {{"fast", "row", "", "a", 1, 1000, 0},
                                       {"slow", "row", "add_norm", "b", 5, 5000, 10},
                                       {"fast", "row", "", "c", 2, 1000, 0}};
  std::string table = profileTable(timings);
  EXPECT_LT(table.find("slow"), table.find("fast"));
  EXPECT_NE(table.find("total"), std::string::npos);
  EXPECT_NE(table.find("8.0"), std::string::npos) << table;
}

TEST(Profile, TraceIsJsonWithOneEventALaunch) {
  std::vector<LaunchTiming> timings = {{"k", "row", "f", "layer", 1.5, 8, 0},
                                       {"k", "row", "", "layer", 2, 8, 0}};
  auto trace = nlohmann::json::parse(chromeTrace(timings));
  ASSERT_EQ(trace["traceEvents"].size(), 2u);
  EXPECT_EQ(trace["traceEvents"][1]["ts"], 1.5);
  EXPECT_EQ(trace["traceEvents"][0]["args"]["location"], "layer");
}
