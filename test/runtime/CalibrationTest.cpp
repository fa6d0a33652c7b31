// Limits between the algorithms of a collective, from times that a test makes up.
#include "runtime/collective/Calibration.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace fusion::test {
namespace {

constexpr AlgorithmLimits table{1 << 20, size_t(256) << 20, 1 << 19};

TEST(Calibration, LimitsLieWhereTheLinesCross) {
  const CollectiveTimes times[] = {
      {1 << 16, 3, 4, 4, -1}, {1 << 18, 6, 6, 5, -1}, {1 << 20, 16, 8, 7, 20}, {1 << 22, -1, 16, 14, 15}};
  const AlgorithmLimits limits = limitsOf(times, table);
  EXPECT_EQ(limits.oneShot, size_t(1) << 18);
  EXPECT_GT(limits.oneShotOfGatheredRows, size_t(1) << 16);
  EXPECT_LT(limits.oneShotOfGatheredRows, size_t(1) << 18);
  EXPECT_GT(limits.twoShot, size_t(1) << 21) << "16 against 15 at the end, 8 against 20 before";
  EXPECT_LT(limits.twoShot, size_t(1) << 22);
}

TEST(Calibration, BeyondWhatWasMeasuredTheTableHolds) {
  const CollectiveTimes oneShotWins[] = {{1 << 16, 3, 4, 4, -1}, {1 << 18, 5, 6, 6, 30}};
  EXPECT_EQ(limitsOf(oneShotWins, table), table);
  const AlgorithmLimits small{1, 2, 3};
  EXPECT_EQ(limitsOf(oneShotWins, small), (AlgorithmLimits{1 << 18, 1 << 18, 1 << 18}));
  const CollectiveTimes twoShotWins[] = {{1 << 16, 5, 4, 3, -1}};
  EXPECT_EQ(limitsOf(twoShotWins, table).oneShot, size_t(1) << 15);
  EXPECT_EQ(limitsOf(twoShotWins, table).twoShot, table.twoShot) << "there is no library";
  EXPECT_EQ(limitsOf({}, table), table);
}

/// Times of a rank: two-shot from 1 MiB on, where the rank with the slowest one says so.
class MadeUp : public CollectiveTimer {
public:
  explicit MadeUp(double slowness) : slowness(slowness) {}
  Status prepare(size_t) override { return problem.empty() ? Status() : environment(problem); }
  Result<std::optional<double>> microseconds(const TimedCollective &collective, size_t bytes) override {
    ++asked;
    if (!late.empty() && asked == 4)
      return environment(late);
    if (collective.algorithm == CollectiveAlgorithm::Library)
      return std::optional<double>();
    const double one = static_cast<double>(bytes), shift = collective.gathersRows ? 1 << 18 : 1 << 20;
    return std::optional(collective.algorithm == CollectiveAlgorithm::OneShot ? one * slowness
                                                                              : one / 2 + shift / 2);
  }
  double slowness;
  std::string problem, late;
  int asked = 0;
};

class Calibrations : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::path(testing::TempDir()) / ("calibration-" + std::to_string(getpid()));
    timers = {MadeUp(0.5), MadeUp(1)};
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  /// What each rank comes to.
  std::vector<Calibration> measured(const std::string &key = "key") {
    auto members = makeThreadRendezvous(2);
    std::vector<Calibration> results(2);
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        KernelCache cache(folder.string());
        auto result = calibrate(*members[rank], cache, key, timers[rank], table);
        ASSERT_TRUE(result) << result.error().message;
        results[rank] = *result;
      });
    threads.clear();
    EXPECT_EQ(results[0].limits, results[1].limits);
    EXPECT_EQ(results[0].origin, results[1].origin);
    return results;
  }
  std::filesystem::path folder;
  std::vector<MadeUp> timers;
};

TEST_F(Calibrations, TheSlowestRankDecidesForAll) {
  const Calibration result = measured()[0];
  EXPECT_EQ(result.origin, "measured");
  EXPECT_NEAR(static_cast<double>(result.limits.oneShot), 1 << 20,
              1 << 18); // of rank 0 alone it would be never
  EXPECT_NEAR(static_cast<double>(result.limits.oneShotOfGatheredRows), 1 << 18, 1 << 16);
  EXPECT_EQ(result.limits.twoShot, table.twoShot);
}

TEST_F(Calibrations, AreKeptForTheNextStart) {
  const Calibration before = measured()[0];
  timers = {MadeUp(100), MadeUp(100)};
  const Calibration again = measured()[0];
  EXPECT_EQ(again.origin, "measured before");
  EXPECT_EQ(again.limits, before.limits);
  EXPECT_EQ(timers[0].asked + timers[1].asked, 0);
  EXPECT_EQ(measured("other GPUs")[0].origin, "measured");
}

TEST_F(Calibrations, WhereOneRankCannotMeasureAllTakeTheTable) {
  timers[1].problem = "no compiler";
  Calibration result = measured()[0];
  EXPECT_EQ(result.limits, table);
  EXPECT_EQ(result.origin, "not measured: rank 1: no compiler");
  EXPECT_EQ(timers[0].asked, 0);
  timers[1].problem.clear();
  timers[1].late = "no more";
  result = measured()[0];
  EXPECT_EQ(result.limits, table);
  EXPECT_EQ(result.origin, "not measured: rank 1: no more");
  timers[1] = MadeUp(0);
  EXPECT_EQ(measured()[0].origin, "not measured: the clock of rank 1's GPU stands still");
  EXPECT_TRUE(!std::filesystem::exists(folder) || std::filesystem::is_empty(folder))
      << "nothing of it is kept";
}

TEST_F(Calibrations, AFormThatIsMuchSlowerIsNotTriedOnLargerMessages) {
  timers = {MadeUp(100), MadeUp(100)};
  measured();
  EXPECT_EQ(timers[0].asked, 1 + 2 * 6 + 3)
      << "once one-shot, then the others at each of 6 sizes, the library at the last 3";
}

} // namespace
} // namespace fusion::test
