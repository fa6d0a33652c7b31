#include "ir/reference/SampleWeight.h"
#include "test/reference/Testing.h"

#include <cmath>
#include <set>

namespace fusion::testing {
namespace {

Tensor seed(int64_t key, int64_t counter) {
  const std::vector<int64_t> values = {key, counter};
  return Tensor::of<int64_t>(DType::I64, {2}, values);
}

/// How often each place is drawn of `scores`, in so many rows.
std::vector<double> frequencies(const std::vector<float> &scores, int64_t rows,
                                const std::string &attributes) {
  std::vector<float> all;
  for (int64_t row = 0; row < rows; ++row)
    all.insert(all.end(), scores.begin(), scores.end());
  const auto length = static_cast<int64_t>(scores.size());
  Tensor drawn = runOp("nn.sample", {Tensor::of<float>(DType::F32, {rows, length}, all), seed(42, 7)},
                       attributes, DType::I64, {rows});
  std::vector<double> counts(scores.size());
  for (int64_t place : drawn.toInts())
    counts.at(static_cast<size_t>(place)) += 1.0 / static_cast<double>(rows);
  return counts;
}

/// Known answer of Philox4x32-10 for key 0 and counter 0: 6627e8d5 e169c58d. Of equal scores the first bits
/// say the place.
TEST(Sample, KnownAnswer) {
  for (auto [count, place] : {std::pair<int64_t, int64_t>{2, 1}, {16, 0xe}, {65536, 0xe169}})
    EXPECT_EQ(runOp("nn.sample", {Tensor::zeros(DType::F32, {count}), seed(0, 0)},
                    "{temperature = 1.0 : f32}", DType::I64, {})
                  .toInts(),
              std::vector<int64_t>{place});
}

/// For all fractions: as near as is promised, never rising, and between the powers of two beside it.
TEST(Sample, WeightsArePowersOfTwo) {
  uint64_t before = ~uint64_t(0);
  for (uint32_t drop = 0; drop <= 1u << 16; ++drop) {
    const uint64_t weight = reference::sampleWeight(drop);
    const double exact = std::exp2(40 - drop / 65536.0);
    ASSERT_NEAR(static_cast<double>(weight), exact, exact * 0x1p-23) << drop;
    ASSERT_LE(weight, before) << drop;
    before = weight;
  }
  EXPECT_EQ(reference::sampleWeight(0), uint64_t(1) << 40);
  EXPECT_EQ(reference::sampleWeight(1u << 16), uint64_t(1) << 39);
  EXPECT_EQ(reference::sampleWeight((40u << 16) - 1), 1u);
}

TEST(Sample, FollowsTheSoftmax) {
  const std::vector<float> scores = {1, -2, 3, 2.5f, -INFINITY, NAN, 0};
  for (double temperature : {0.5, 1.0, 3.0}) {
    double sum = 0;
    for (float score : scores)
      sum += score == score ? std::exp(score / temperature) : 0;
    constexpr int64_t rows = 40000;
    const auto seen = frequencies(scores, rows, fmt::format("{{temperature = {:e} : f32}}", temperature));
    for (size_t i = 0; i < scores.size(); ++i) {
      const double expected = scores[i] == scores[i] ? std::exp(scores[i] / temperature) / sum : 0;
      EXPECT_NEAR(seen[i], expected, 5 * std::sqrt(expected * (1 - expected) / rows))
          << i << " at " << temperature;
    }
  }
}

TEST(Sample, KeepsTheMostLikely) {
  const std::vector<float> scores = {0, 2, 1, 2, -1, 3}; // probabilities .026 .190 .070 .190 .009 .516
  auto kept = [&](const std::string &attributes) {
    std::string places;
    const auto seen = frequencies(scores, 3000, "{temperature = 1.0 : f32, " + attributes + "}");
    for (size_t i = 0; i < seen.size(); ++i)
      if (seen[i] > 0)
        places += std::to_string(i);
    return places;
  };
  EXPECT_EQ(kept("top_k = 1 : i64"), "5");
  EXPECT_EQ(kept("top_k = 2 : i64"), "135"); // what is equal to the last stays
  EXPECT_EQ(kept("top_k = 4 : i64"), "1235");
  EXPECT_EQ(kept("top_p = 0.51 : f64"), "5");
  EXPECT_EQ(kept("top_p = 0.52 : f64"), "135");
  EXPECT_EQ(kept("top_p = 0.9 : f64"), "1235");
  EXPECT_EQ(kept("top_k = 3 : i64, top_p = 0.57 : f64"), "5"); // of those it has .516 / .895
  EXPECT_EQ(kept("top_k = 3 : i64, top_p = 0.58 : f64"), "135");
}

TEST(Sample, OtherCountersDrawOtherPlaces) {
  std::set<int64_t> places;
  for (int64_t counter = 0; counter < 8; ++counter)
    places.insert(runOp("nn.sample", {Tensor::zeros(DType::F32, {1000}), seed(3, counter)},
                        "{temperature = 1.0 : f32}", DType::I64, {})
                      .toInts()[0]);
  EXPECT_GT(places.size(), 6u);
}

} // namespace
} // namespace fusion::testing
