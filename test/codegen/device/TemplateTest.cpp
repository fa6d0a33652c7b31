// Templates with functors written by hand, against loops of the host; and that all compilers take them
// without spills.
#include "codegen/device/Includes.h"
#include "codegen/target/TargetInfo.h"
#include "test/codegen/device/Machine.h"
#include "test/codegen/device/TemplateSamples.h"
#include "test/codegen/spills/Spills.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace fusion;
using namespace fusion::samples;

class Templates : public OnMachine {
protected:
  std::vector<float> floats(size_t count) {
    std::uniform_real_distribution<float> real(-2, 2);
    std::vector<float> values(count);
    for (float &value : values)
      value = real(random);
    return values;
  }
  std::vector<int64_t> integers(size_t count) {
    std::vector<int64_t> values(count);
    for (int64_t &value : values)
      value = static_cast<int64_t>(random()) - INT64_C(0x7fffffff);
    return values;
  }
  std::mt19937 random{std::random_device{}()};
};
INSTANTIATE_TEST_SUITE_P(, Templates, testing::Values(Machine::Emulated, Machine::Cuda),
                         testing::PrintToStringParamName());

TEST_P(Templates, FlatVectorsAndTheirRest) {
  for (int64_t n : {1, 4, 511, 512, 515, 1000}) {
    std::vector<float> x = floats(static_cast<size_t>(n)), scale = {1.5f}, y(x.size() + 1, -7.f);
    ASSERT_NO_FATAL_FAILURE(run(flatScale(), {static_cast<uint32_t>((n + 511) / 512)}, {x, scale, y, n}));
    for (size_t i = 0; i < x.size(); ++i) {
      const float product = x[i] * 1.5f;
      ASSERT_EQ(y[i], product + 1.f) << i << " of " << n;
    }
    EXPECT_EQ(y[x.size()], -7.f);
  }
}

TEST_P(Templates, RowsOfVectors) {
  constexpr int64_t rows = 71, vectors = rows * 3;
  std::vector<float> x = floats(rows * 12), y(x.size());
  ASSERT_NO_FATAL_FAILURE(run(rowsPlace(), {static_cast<uint32_t>((vectors + 63) / 64)}, {x, y, vectors}));
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(y[i], x[i] + static_cast<float>(1000 * (i / 12) + i % 12)) << i;
}

TEST_P(Templates, IndexedElementsAGridApart) {
  std::vector<int64_t> x = integers(333), y(x.size());
  ASSERT_NO_FATAL_FAILURE(run(indexedReverse(), {2}, {x, y, static_cast<int64_t>(x.size())}));
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(y[i], x[x.size() - 1 - i]) << i;
}

TEST_P(Templates, RunningSums) {
  for (bool reverse : {false, true})
    for (bool exclusive : {false, true})
      for (int64_t length : {1, 31, 32, 77}) {
        constexpr int64_t rows = 5;
        std::vector<int64_t> x = integers(static_cast<size_t>(rows * length)), y(x.size());
        ASSERT_NO_FATAL_FAILURE(run(runningSum(reverse, exclusive), {2}, {x, y, rows, length}));
        for (int64_t row = 0; row < rows; ++row) {
          int64_t sum = 0;
          for (int64_t step = 0; step < length; ++step) {
            const auto at = static_cast<size_t>(row * length + (reverse ? length - 1 - step : step));
            const int64_t before = sum;
            sum += x[at];
            ASSERT_EQ(y[at], exclusive ? before : sum) << row << " " << step << " of " << length;
          }
        }
      }
}

TEST_P(Templates, ArgMax) {
  for (auto [function, length, cluster, width] : {std::tuple("arg_max", 1, 1u, 1),
                                                  {"arg_max", 31, 1u, 1},
                                                  {"arg_max", 64, 1u, 1},
                                                  {"arg_max", 129, 1u, 1},
                                                  {"arg_max_of_block", 1, 1u, 1},
                                                  {"arg_max_of_block", 63, 1u, 1},
                                                  {"arg_max_of_block", 129, 1u, 1},
                                                  {"arg_max_of_block", 1200, 1u, 1},
                                                  {"arg_max_of_block", 1200, 1u, 4},
                                                  {"arg_max_of_block", 4, 1u, 4},
                                                  {"arg_max_of_block", 1, 8u, 1},
                                                  {"arg_max_of_block", 9001, 8u, 1},
                                                  {"arg_max_of_block", 9004, 8u, 4}}) {
    constexpr int64_t rows = 7;
    std::vector<float> x = floats(static_cast<size_t>(rows * length));
    std::vector<int64_t> y(rows);
    x[static_cast<size_t>(3 * length + length / 2)] = NAN;
    for (int64_t i = 0; i < length; ++i)
      x[static_cast<size_t>(4 * length + i)] = 1.f;
    ASSERT_NO_FATAL_FAILURE(run(argMax(function, static_cast<int>(cluster), width), {3 * cluster},
                                {x, y, rows, int64_t(length)}));
    for (int64_t row = 0; row < rows; ++row) {
      int64_t best = 0;
      auto value = [&](int64_t at) { return x[static_cast<size_t>(row * length + at)]; };
      for (int64_t at = 1; at < length; ++at)
        if (value(at) > value(best) || (std::isnan(value(at)) && !std::isnan(value(best))))
          best = at;
      ASSERT_EQ(y[static_cast<size_t>(row)], best) << row << " of " << length;
    }
  }
}

TEST_P(Templates, TopThree) {
  for (int64_t length : {3, 33, 129}) {
    constexpr int64_t rows = 7;
    std::vector<int64_t> x = integers(static_cast<size_t>(rows * length)), y(3 * rows);
    for (int64_t i = 0; i < length; ++i)
      x[static_cast<size_t>(2 * length + i)] = i % 2;
    ASSERT_NO_FATAL_FAILURE(run(topThree(), {3}, {x, y, rows, length}));
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int64_t> places(static_cast<size_t>(length));
      std::iota(places.begin(), places.end(), 0);
      auto value = [&](int64_t at) { return x[static_cast<size_t>(row * length + at)]; };
      std::stable_sort(places.begin(), places.end(),
                       [&](int64_t a, int64_t b) { return value(a) > value(b); });
      for (size_t rank = 0; rank < 3; ++rank)
        ASSERT_EQ(y[static_cast<size_t>(3 * row) + rank], places[rank]) << row << " of " << length;
    }
  }
}

TEST(TemplatesCompile, ForEachTargetWithoutSpills) {
  for (const KernelPlan &plan : templates())
    test::checkSpills(plan, test::Targets::All);
}
