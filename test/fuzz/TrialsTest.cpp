// Graphs are checked in processes of their own, side by side.
#include "tools/fusion-fuzz/Trials.h"

#include "ir/base/TemporaryPath.h"
#include "test/runtime/SamplePlan.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>
#include <unistd.h>

using namespace fusion;
using namespace fusion::fuzz;
using namespace std::chrono_literals;
using test::TemporaryFolder;

namespace {

std::map<uint64_t, std::string> problemsOf(Trials &trials) {
  std::map<uint64_t, std::string> problems;
  while (trials.running() > 0) {
    auto ended = trials.next();
    EXPECT_TRUE(ended) << ended.error().message;
    if (ended)
      problems[ended->first] = ended->second.problem;
  }
  return problems;
}

bool waitFor(const std::string &file) {
  for (int i = 0; i < 3000 && !std::filesystem::exists(file); ++i)
    std::this_thread::sleep_for(10ms);
  return std::filesystem::exists(file);
}

/// Each ends only when all have begun.
TEST(Trials, RunSideBySide) {
  TemporaryFolder folder;
  auto place = [&](uint64_t seed) { return folder.path + "/" + std::to_string(seed); };
  Trials trials(
      [&](const std::string &, uint64_t seed, std::string &fired) -> Status {
        std::ofstream(place(seed)) << "here";
        for (uint64_t other = 0; other < 3; ++other)
          if (!waitFor(place(other)))
            return badInput("alone");
        fired = "gelu=" + std::to_string(seed);
        return {};
      },
      1);
  for (uint64_t seed = 0; seed < 3; ++seed)
    ASSERT_TRUE(trials.start({{seed, ""}}));
  EXPECT_EQ(trials.running(), 3u);
  for (size_t left = 3; left-- > 0;) {
    auto ended = trials.next();
    ASSERT_TRUE(ended) << ended.error().message;
    EXPECT_EQ(ended->second.problem, "");
    EXPECT_EQ(ended->second.fired, "gelu=" + std::to_string(ended->first));
    EXPECT_EQ(trials.running(), left);
  }
}

TEST(Trials, WhatEndsFirstIsToldFirst) {
  TemporaryFolder folder;
  Trials trials(
      [&](const std::string &, uint64_t seed, std::string &) -> Status {
        return seed == 2 || waitFor(folder.path + "/go") ? Status() : badInput("too late");
      },
      1);
  for (uint64_t seed : {1, 2, 3})
    ASSERT_TRUE(trials.start({{seed, ""}}));
  auto first = trials.next();
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->first, 2u);
  std::ofstream(folder.path + "/go") << "now";
  EXPECT_EQ(problemsOf(trials), (std::map<uint64_t, std::string>{{1, ""}, {3, ""}}));
}

TEST(Trials, ACrashIsOneGraphsProblem) {
  Trials trials(
      [](const std::string &path, uint64_t seed, std::string &fired) -> Status {
        std::string text;
        std::getline(std::ifstream(path), text);
        if (text == "crash")
          raise(SIGKILL);
        if (text == "hang") {
          kill(getpid(), SIGALRM);
          std::this_thread::sleep_for(100s);
        }
        if (text == "differ")
          return badInput("other numbers\nin two lines of " + std::to_string(seed));
        fired = "much=" + std::string(100000, '1'); // more than a pipe holds
        return {};
      },
      1);
  uint64_t seed = 0;
  for (const char *text : {"crash", "hang", "differ", "fine"})
    ASSERT_TRUE(trials.start({{seed++, text}}));
  EXPECT_EQ(problemsOf(trials), (std::map<uint64_t, std::string>{{0, "ended by signal 9"},
                                                                 {1, "no answer after 120 s"},
                                                                 {2, "other numbers\nin two lines of 2"},
                                                                 {3, ""}}));
}

/// Of a process with several graphs, and those after it are checked.
TEST(Trials, AProblemEndsNoOtherGraph) {
  TemporaryFolder folder;
  Trials trials(
      [&](const std::string &path, uint64_t seed, std::string &) -> Status {
        std::string text;
        std::getline(std::ifstream(path), text);
        std::ofstream(folder.path + "/" + std::to_string(seed)) << getpid();
        if (text == "crash")
          raise(SIGKILL);
        return text == "differ" ? badInput("other numbers") : Status();
      },
      1);
  ASSERT_TRUE(
      trials.start({{0, "fine"}, {1, "crash"}, {2, "fine"}, {3, "differ"}, {4, "fine"}, {5, "fine"}}));
  EXPECT_EQ(trials.running(), 1u);
  EXPECT_EQ(problemsOf(trials),
            (std::map<uint64_t, std::string>{
                {0, ""}, {1, "ended by signal 9"}, {2, ""}, {3, "other numbers"}, {4, ""}, {5, ""}}));
  std::vector<std::string> processes(6);
  for (size_t i = 0; i < processes.size(); ++i)
    std::ifstream(folder.path + "/" + std::to_string(i)) >> processes[i];
  EXPECT_EQ(processes[0], processes[1]);
  EXPECT_NE(processes[1], processes[2]);
  EXPECT_EQ(processes[2], processes[3]);
  EXPECT_NE(processes[3], processes[4]);
  EXPECT_EQ(processes[4], processes[5]);
}

TEST(Trials, WhatTheMachineLacksIsAnError) {
  Trials trials([](const std::string &, uint64_t, std::string &) -> Status { return environment("no GPU"); },
                1);
  ASSERT_TRUE(trials.start({{1, ""}}));
  auto ended = trials.next();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().kind, ErrorKind::Environment);
  EXPECT_EQ(ended.error().message, "no GPU");
}

/// A kernel that faults says so too, and is not to end the search.
TEST(Trials, WhatIsLackingAfterAnAnswerIsAGraphsProblem) {
  Trials trials(
      [](const std::string &, uint64_t seed, std::string &) -> Status {
        return seed == 1 ? environment("an illegal address") : Status();
      },
      1);
  ASSERT_TRUE(trials.start({{0, ""}, {1, ""}, {2, ""}}));
  EXPECT_EQ(problemsOf(trials),
            (std::map<uint64_t, std::string>{{0, ""}, {1, "an illegal address"}, {2, ""}}));
}

/// What a compiler of one has begun to write is removed with it, and nothing of another's.
TEST(Trials, EndWithTheirObject) {
  const TemporaryFolder folder;
  const std::string half = folder.path + "/half", graph = folder.path + "/graph",
                    others = folder.path + "/others";
  std::ofstream(others) << "x";
  const TemporaryPath mine(others);
  const auto begin = std::chrono::steady_clock::now();
  {
    Trials trials(
        [&](const std::string &path, uint64_t, std::string &) -> Status {
          const TemporaryPath temporary(half);
          std::ofstream(half) << "x";
          std::ofstream(graph) << path << std::endl;
          std::this_thread::sleep_for(100s);
          return {};
        },
        1);
    ASSERT_TRUE(trials.start({{1, ""}}));
    ASSERT_TRUE(waitFor(graph));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
  EXPECT_FALSE(std::filesystem::exists(half));
  EXPECT_TRUE(std::filesystem::exists(others));
  std::string path;
  std::getline(std::ifstream(graph), path);
  EXPECT_FALSE(std::filesystem::exists(path));
}

} // namespace
