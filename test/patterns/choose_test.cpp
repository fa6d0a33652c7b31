// The choice among overlapping candidates, against exhaustive search.
#include "passes/fuse/Candidate.h"

#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <random>

using namespace fusion;

namespace {
/// A block of ops to choose from.
class Choose : public testing::Test {
protected:
  Choose() {
    context.allowUnregisteredDialects();
    for (int i = 0; i < 400; ++i)
      block.push_back(mlir::Operation::create(
          mlir::OperationState(mlir::UnknownLoc::get(&context), mlir::OperationName("test.op", &context))));
    for (mlir::Operation &op : block)
      ops.push_back(&op);
  }

  Candidate candidate(std::initializer_list<int> numbers, double score) {
    Candidate made;
    for (int number : numbers)
      made.ops.push_back(ops[static_cast<size_t>(number)]);
    made.root = made.ops.back();
    made.score = score;
    return made;
  }

  /// `first` to `last` but for some between.
  Candidate scattered(int first, int last, double score) {
    Candidate made = candidate({first}, score);
    for (int number = first + 1; number <= last; ++number)
      if (number == last || random() % 2)
        made.ops.push_back(ops[static_cast<size_t>(number)]);
    return made;
  }

  static std::vector<size_t> choose(const std::vector<Candidate> &candidates) {
    std::vector<double> scores;
    for (const Candidate &each : candidates)
      scores.push_back(each.score);
    auto chosen = chooseCandidates(candidates, scores);
    return {chosen.begin(), chosen.end()};
  }

  static void expectDisjoint(const std::vector<Candidate> &candidates, llvm::ArrayRef<size_t> chosen) {
    for (size_t a : chosen)
      for (size_t b : chosen)
        EXPECT_TRUE(a == b || !candidates[a].overlaps(candidates[b]));
  }

  mlir::MLIRContext context;
  mlir::Block block;
  std::vector<mlir::Operation *> ops;
  std::mt19937 random{3};
};

double total(const std::vector<Candidate> &candidates, llvm::ArrayRef<size_t> chosen) {
  double sum = 0;
  for (size_t index : chosen)
    sum += candidates[index].score;
  return sum;
}

/// The best total by trying every set.
double bestOf(const std::vector<Candidate> &candidates) {
  double best = 0;
  for (unsigned set = 0; set < 1u << candidates.size(); ++set) {
    bool legal = true;
    double score = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!(set >> i & 1))
        continue;
      score += candidates[i].score;
      for (size_t j = 0; j < i; ++j)
        legal &= !(set >> j & 1) || !candidates[i].overlaps(candidates[j]);
    }
    if (legal)
      best = std::max(best, score);
  }
  return best;
}

TEST_F(Choose, TwoSmallBeatOneLarge) {
  std::vector<Candidate> candidates = {candidate({0, 1}, 2), candidate({1, 2}, 3), candidate({2, 3}, 2)};
  EXPECT_EQ(choose(candidates), (std::vector<size_t>{0, 2}));
}

TEST_F(Choose, EqualsExhaustiveSearch) {
  for (int round = 0; round < 200; ++round) {
    std::vector<Candidate> candidates;
    const int count = 1 + static_cast<int>(random() % 12);
    for (int i = 0; i < count; ++i) {
      const int first = static_cast<int>(random() % 10);
      candidates.push_back(scattered(first, first + 1 + static_cast<int>(random() % 6), 1 + random() % 7));
    }
    const std::vector<size_t> chosen = choose(candidates);
    EXPECT_EQ(total(candidates, chosen), bestOf(candidates));
    expectDisjoint(candidates, chosen);
  }
}

/// Each candidate overlaps the next, as those of layer after layer do: ten pieces of 12, of which the best is
/// known.
TEST_F(Choose, LongChainsAreExact) {
  std::vector<Candidate> candidates;
  double best = 0;
  for (int piece = 0; piece < 10; ++piece) {
    std::vector<Candidate> part;
    for (int i = 0; i < 12; ++i) {
      const int first = piece * 20 + static_cast<int>(random() % 14);
      part.push_back(scattered(first, first + 1 + static_cast<int>(random() % 4), 1 + random() % 7));
    }
    best += bestOf(part);
    candidates.insert(candidates.end(), part.begin(), part.end());
    if (piece > 0) // joins the pieces and is worth nothing
      candidates.push_back(candidate({piece * 20 - 7, piece * 20 + 3}, 0));
  }
  const std::vector<size_t> chosen = choose(candidates);
  EXPECT_EQ(total(candidates, chosen), best);
  expectDisjoint(candidates, chosen);
}

/// Hundreds of candidates over the same ops, more sets than are looked at: still disjoint, and not worse than
/// greedy.
TEST_F(Choose, CrowdsStayLegal) {
  std::vector<Candidate> candidates;
  for (int i = 0; i < 600; ++i)
    candidates.push_back(
        candidate({static_cast<int>(random() % 100), 100 + static_cast<int>(random() % 100)}, 1 + i % 3));
  const std::vector<size_t> chosen = choose(candidates);
  expectDisjoint(candidates, chosen);
  std::vector<Candidate> greedy;
  for (double score : {3., 2., 1.})
    for (const Candidate &each : candidates)
      if (each.score == score &&
          llvm::none_of(greedy, [&](const Candidate &other) { return other.overlaps(each); }))
        greedy.push_back(each);
  double sum = 0;
  for (const Candidate &each : greedy)
    sum += each.score;
  EXPECT_GE(total(candidates, chosen), sum);
}

TEST_F(Choose, WhatLosesIsLeftOut) {
  std::vector<Candidate> many = {candidate({50, 51}, -1)};
  for (int i = 0; i < 40; ++i)
    many.push_back(candidate({i, i + 1}, i % 2 ? -1 : 1));
  for (size_t index : choose(many))
    EXPECT_GT(many[index].score, 0);
}

TEST_F(Choose, OfEqualOnesTheFirst) {
  std::vector<Candidate> same = {candidate({4, 6}, 2), candidate({3, 6}, 2), candidate({4, 6}, 2)};
  EXPECT_EQ(choose(same), (std::vector<size_t>{0}));
}
} // namespace
