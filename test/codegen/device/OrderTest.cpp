// FUSION_EMULATE_ORDER: threads take turns in another order, which a kernel with a race shows.
#include "test/codegen/device/Emulation.h"
#include "test/codegen/device/Samples.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

namespace fusion::samples {
namespace {

/// What y[0] holds after a run of one block of 64 threads in the orders of seeds 0 to 7.
std::set<uint32_t> resultsOf(const KernelPlan &plan) {
  std::set<uint32_t> results;
  for (int seed = 0; seed < 8; ++seed) {
    setenv("FUSION_EMULATE_ORDER", std::to_string(seed).c_str(), 1);
    uint32_t y = 0;
    const Status status = run(plan, 1, &y);
    unsetenv("FUSION_EMULATE_ORDER");
    EXPECT_TRUE(status) << messageOf(status);
    results.insert(y);
  }
  return results;
}

TEST(Order, ShowsARace) {
  EXPECT_GT(resultsOf(kernel("last_writer", 64, {"u32 *y"}, R"(
  barrier();
  store(y, thread_x());
)"))
                .size(),
            1u);
}

TEST(Order, ChangesNothingBehindABarrier) {
  EXPECT_EQ(resultsOf(kernel("sum_of_places", 64, {"u32 *y"}, R"(
  SHARED(u32, places, 64);
  places[thread_x()] = thread_x();
  barrier();
  u32 sum = 0;
  for (u32 i = 0; i < 64u; ++i)
    sum += places[i];
  if (thread_x() == 0)
    store(y, sum);
)")),
            std::set<uint32_t>{2016u});
}

} // namespace
} // namespace fusion::samples
