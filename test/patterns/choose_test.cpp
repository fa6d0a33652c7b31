// The choice among overlapping candidates, against exhaustive search.
#include "passes/fuse/Candidate.h"

#include <gtest/gtest.h>

#include <random>

using namespace fusion;

namespace {
/// The choice looks only at identities: stand-ins for ops.
mlir::Operation *fake(int number) { return reinterpret_cast<mlir::Operation *>(uintptr_t(number + 1) << 6); }

Candidate candidate(std::initializer_list<int> ops, double score) {
  Candidate made;
  for (int op : ops)
    made.ops.push_back(fake(op));
  made.root = made.ops.back();
  made.score = score;
  return made;
}

double total(const std::vector<Candidate> &candidates, llvm::ArrayRef<size_t> chosen) {
  double sum = 0;
  for (size_t index : chosen)
    sum += candidates[index].score;
  return sum;
}

TEST(Choose, TwoSmallBeatOneLarge) {
  std::vector<Candidate> candidates = {candidate({0, 1}, 2), candidate({1, 2}, 3), candidate({2, 3}, 2)};
  auto chosen = chooseCandidates(candidates);
  EXPECT_EQ(std::vector<size_t>(chosen.begin(), chosen.end()), (std::vector<size_t>{0, 2}));
}

TEST(Choose, EqualsExhaustiveSearch) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Candidate> candidates;
    int count = 1 + static_cast<int>(random() % 9);
    for (int i = 0; i < count; ++i) {
      int first = static_cast<int>(random() % 10);
      candidates.push_back(candidate({first, first + 1 + static_cast<int>(random() % 2)}, 1 + random() % 7));
    }
    double best = 0;
    for (unsigned set = 0; set < 1u << count; ++set) {
      bool legal = true;
      double score = 0;
      for (int i = 0; i < count; ++i) {
        if (!(set >> i & 1))
          continue;
        score += candidates[i].score;
        for (int j = 0; j < i; ++j)
          legal &= !(set >> j & 1) || !candidates[i].overlaps(candidates[j]);
      }
      if (legal)
        best = std::max(best, score);
    }
    auto chosen = chooseCandidates(candidates);
    EXPECT_EQ(total(candidates, chosen), best);
    for (size_t a : chosen)
      for (size_t b : chosen)
        EXPECT_TRUE(a == b || !candidates[a].overlaps(candidates[b]));
  }
}

TEST(Choose, WhatLosesIsLeftOut) {
  std::vector<Candidate> few = {candidate({0, 1}, -1), candidate({2, 3}, 1)};
  EXPECT_EQ(chooseCandidates(few).size(), 1u);
  std::vector<Candidate> many;
  for (int i = 0; i < 40; ++i)
    many.push_back(candidate({i, i + 1}, i % 2 ? -1 : 1));
  for (size_t index : chooseCandidates(many))
    EXPECT_GT(many[index].score, 0);
}

TEST(Choose, LargeComponentsStayLegal) {
  std::vector<Candidate> candidates;
  for (int i = 0; i < 40; ++i)
    candidates.push_back(candidate({i, i + 1}, 1 + i % 3));
  auto chosen = chooseCandidates(candidates);
  EXPECT_GE(chosen.size(), 13u);
  for (size_t a : chosen)
    for (size_t b : chosen)
      EXPECT_TRUE(a == b || !candidates[a].overlaps(candidates[b]));
}
} // namespace
