// The choice between kernels and a library for matrix products, and the calls, over a stand-in for cuBLASLt.
#include "ProductPlan.h"
#include "TimingBackend.h"

#include "runtime/Multiplier.h"
#include "runtime/ProductWays.h"
#include "runtime/ShapePlan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>

using namespace fusion;
using namespace fusion::test;

namespace {

template <class Function>
Function *ofFake(const char *name) {
  return reinterpret_cast<Function *>(dlsym(dlopen(FUSION_FAKE_CUBLASLT, RTLD_NOW), name));
}

class ChosenWays : public testing::Test {
protected:
  void SetUp() override {
    setenv("FUSION_CUBLASLT", FUSION_FAKE_CUBLASLT, 1);
    unsetenv("FUSION_MATMUL");
    options.target = ExecutorOptions::Target::Emulate;
    options.cacheFolder = folder.path;
  }
  void TearDown() override { unsetenv("FUSION_MATMUL"); }

  ProductWays ways() {
    ProductWays made(plan, options);
    made.timeOn([this](std::span<const KernelPlan> kernels) -> Result<std::unique_ptr<Backend>> {
      ++measurements;
      return std::unique_ptr<Backend>(std::make_unique<TimingBackend>(kernels, [this](const KernelPlan &kernel) {
        return kernel.name == "ours" ? ours : kernel.isLibraryCall ? library : 1;
      }));
    });
    return made;
  }
  static Status decide(ProductWays &ways, int64_t rows, bool mayMeasure = true) {
    return ways.decide({{"rows", rows}}, mayMeasure, "a device");
  }

  TemporaryFolder folder;
  ExecutorOptions options;
  ProgramPlan plan = twoProducts();
  double ours = 5, library = 3;
  int measurements = 0;
};

TEST_F(ChosenWays, ThePlanIsValidAndCountsOneWay) {
  ASSERT_TRUE(verify(plan)) << verify(plan).error().message;
  EXPECT_EQ(plan.launchesOfRun(), 2);
  EXPECT_EQ(plan.endOfProducts(0), 3u);
  EXPECT_EQ(plan.endOfProducts(1), 1u);
  EXPECT_EQ(plan.endOfProducts(3), 6u);
  EXPECT_FALSE(plan.isOtherWay(3));
  EXPECT_TRUE(plan.isOtherWay(4));
}

TEST_F(ChosenWays, TheFasterOneUpToEachPowerOfTwo) {
  ProductWays chosen = ways();
  EXPECT_FALSE(chosen.empty());
  ASSERT_TRUE(decide(chosen, 100));
  EXPECT_TRUE(chosen.byLibrary(0) && chosen.byLibrary(3)); // 3 + 1 against 5
  EXPECT_FALSE(chosen.byLibrary(1));
  EXPECT_EQ(chosen.text(), "2 of 2 matrix products of many rows by the library, 0 by kernels (cuBLASLt 13.1.0)");
  EXPECT_EQ(measurements, 1); // the two are alike
  ours = 3.5;
  ASSERT_TRUE(decide(chosen, 128));
  EXPECT_TRUE(chosen.byLibrary(0));
  EXPECT_EQ(measurements, 1);
  ASSERT_TRUE(decide(chosen, 129));
  EXPECT_FALSE(chosen.byLibrary(0) || chosen.byLibrary(3));
  EXPECT_EQ(measurements, 2);
  for (int64_t few : {0, 1, 15}) {
    ASSERT_TRUE(decide(chosen, few));
    EXPECT_FALSE(chosen.byLibrary(0));
    EXPECT_EQ(chosen.text(), "");
  }
  EXPECT_EQ(measurements, 2);
}

TEST_F(ChosenWays, AreKeptOnDisk) {
  ProductWays first = ways();
  ASSERT_TRUE(decide(first, 100));
  ours = 1;
  ProductWays second = ways();
  ASSERT_TRUE(decide(second, 70));
  EXPECT_TRUE(second.byLibrary(0));
  EXPECT_EQ(measurements, 1);
  plan.kernels[0].source = "ours, better";
  ProductWays third = ways();
  ASSERT_TRUE(decide(third, 70));
  EXPECT_FALSE(third.byLibrary(0));
  EXPECT_EQ(measurements, 2);
  ASSERT_TRUE(third.decide({{"rows", 70}}, true, "another device"));
  EXPECT_EQ(measurements, 2); // decided already
}

TEST_F(ChosenWays, NothingIsMeasuredWhileAGraphIsRecorded) {
  ProductWays chosen = ways();
  ASSERT_TRUE(decide(chosen, 100, /*mayMeasure=*/false));
  EXPECT_FALSE(chosen.byLibrary(0));
  EXPECT_EQ(measurements, 0);
  ASSERT_TRUE(decide(chosen, 100));
  EXPECT_TRUE(chosen.byLibrary(0));
}

TEST_F(ChosenWays, AFailureLeavesTheKernelAndSaysWhy) {
  ProductWays chosen(plan, options);
  chosen.timeOn([](std::span<const KernelPlan>) -> Result<std::unique_ptr<Backend>> { return environment("no memory"); });
  ASSERT_TRUE(decide(chosen, 100));
  EXPECT_FALSE(chosen.byLibrary(0));
  EXPECT_EQ(chosen.text(),
            "0 of 2 matrix products of many rows by the library, 2 by kernels (cuBLASLt 13.1.0; no memory)");
}

TEST_F(ChosenWays, AsTheUserSays) {
  setenv("FUSION_MATMUL", "library", 1);
  ours = 0;
  ProductWays forced = ways();
  ASSERT_TRUE(decide(forced, 100));
  EXPECT_TRUE(forced.byLibrary(0));
  setenv("FUSION_MATMUL", "kernel", 1);
  ProductWays kernels = ways();
  ASSERT_TRUE(decide(kernels, 100));
  EXPECT_FALSE(kernels.byLibrary(0));
  EXPECT_NE(kernels.text().find("FUSION_MATMUL is kernel"), std::string::npos) << kernels.text();
  setenv("FUSION_MATMUL", "both", 1);
  ProductWays wrong = ways();
  EXPECT_FALSE(decide(wrong, 100));
  EXPECT_EQ(measurements, 0);

  setenv("FUSION_MATMUL", "library", 1);
  setenv("FUSION_CUBLASLT", "0", 1);
  ProductWays missing = ways();
  Status status = decide(missing, 100);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::Environment);
  unsetenv("FUSION_MATMUL");
  ProductWays without = ways();
  ASSERT_TRUE(decide(without, 100));
  EXPECT_FALSE(without.byLibrary(0));
  EXPECT_NE(without.text().find("FUSION_CUBLASLT is 0"), std::string::npos) << without.text();
}

TEST_F(ChosenWays, ARunHasTheLaunchesAndTemporariesOfOneWay) {
  auto ours = planShapes(plan, {{"rows", 100}});
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->launches.size(), 2u);
  EXPECT_TRUE(ours->launches[1].overlapsPrevious);
  auto mixed = planShapes(plan, {{"rows", 100}}, nullptr, [](size_t begin) { return begin == 3; });
  ASSERT_TRUE(mixed);
  ASSERT_EQ(mixed->launches.size(), 3u);
  EXPECT_EQ(mixed->launches[1].source, 4u);
  EXPECT_FALSE(mixed->launches[1].overlapsPrevious);
  EXPECT_FALSE(mixed->launches[2].overlapsPrevious); // a library's kernel lets nobody start early
  EXPECT_GT(mixed->arenaBytes, ours->arenaBytes);
}

TEST_F(ChosenWays, AStepToSizesOfAnotherClassIsPlannedAnew) {
  ShapePlanner planner(plan);
  ASSERT_EQ(planner.sizes().table.symbols().front(), "rows");
  std::vector<uint32_t> changed;
  auto from = [&](int64_t rows) {
    auto shapes = planner.plan({{"rows", rows}}, nullptr, [&](size_t) { return rows >= 16; });
    EXPECT_TRUE(shapes);
    return *shapes;
  };
  auto values = [&](int64_t rows) {
    std::vector<int64_t> numbers = from(100).symbols;
    numbers[0] = rows;
    return numbers;
  };
  ShapePlan many = from(100), few = from(3);
  EXPECT_TRUE(planner.update(many, values(110), changed));
  EXPECT_EQ(changed.size(), 4u); // all of the library way
  EXPECT_FALSE(planner.update(many, values(129), changed));
  EXPECT_FALSE(planner.update(many, values(15), changed));
  EXPECT_TRUE(planner.update(few, values(9), changed));
  EXPECT_FALSE(planner.update(few, values(16), changed));
}

TEST_F(ChosenWays, ALibraryWithoutItsPlaceInThePlanIsAnError) {
  ProgramPlan wrong = plan;
  wrong.launches.erase(wrong.launches.begin());
  EXPECT_FALSE(verify(wrong));
  wrong = plan;
  wrong.launches[2].when->least = 17;
  EXPECT_FALSE(verify(wrong));
  wrong = plan;
  wrong.launches[2].arguments[1].buffer = 2;
  EXPECT_FALSE(verify(wrong));
  wrong = plan;
  wrong.kernels[2].parameters.pop_back();
  EXPECT_FALSE(verify(wrong));
  auto back = programPlanFromJson(toJson(plan));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->kernels[2].product, plan.kernels[2].product);
  EXPECT_EQ(back->launches[1].way, ProductWay::Library);
  EXPECT_EQ(toJson(*back), toJson(plan));
}

/// a is m x k, b n x k.
Status multiplyOnce(Multiplier &multiplier, const float *a, const float *b, float *c, int64_t m, int64_t n, int64_t k) {
  std::vector<uint64_t> arguments{reinterpret_cast<uint64_t>(a), reinterpret_cast<uint64_t>(b), reinterpret_cast<uint64_t>(c)};
  for (int64_t number : {m, n, k, int64_t(1), k, k, n, m * k, n * k, m * n})
    arguments.push_back(static_cast<uint64_t>(number));
  return multiplier.multiply(*productKernel().product, arguments);
}

TEST_F(ChosenWays, AlgorithmsFitThePointersAndAreTriedOnce) {
  auto backend = makeEmulatedBackend({});
  ASSERT_TRUE(backend);
  auto *products = ofFake<int()>("fakeCublasLtProducts"), *algorithm = ofFake<int()>("fakeCublasLtAlgorithm");
  {
    auto trying = Multiplier::make(**backend, folder.path, /*mayTry=*/true);
    ASSERT_TRUE(trying) << trying.error().message;
    alignas(256) float a[40 * 3], b[20 * 3], c[40 * 20];
    std::fill(std::begin(a), std::end(a), 2.f);
    std::fill(std::begin(b), std::end(b), 3.f);
    int before = products();
    ASSERT_TRUE(multiplyOnce(**trying, a, b, c, 40, 20, 3));
    EXPECT_GT(products() - before, 1);
    EXPECT_EQ(c[799], 18.f);
    before = products();
    ASSERT_TRUE(multiplyOnce(**trying, a, b, c, 40, 20, 3));
    ASSERT_TRUE(multiplyOnce(**trying, a, b, c, 36, 20, 3)); // about as many rows
    EXPECT_EQ(products() - before, 2);
    auto taking = Multiplier::make(**backend, folder.path, /*mayTry=*/false);
    ASSERT_TRUE(taking);
    before = products();
    ASSERT_TRUE(multiplyOnce(**taking, a, b, c, 5, 19, 3));
    EXPECT_EQ(products() - before, 1);
    EXPECT_EQ(algorithm(), 0);
    ASSERT_TRUE(multiplyOnce(**taking, a + 1, b, c, 5, 19, 3));
    EXPECT_EQ(algorithm(), 1); // 0 wants 16 bytes
    std::vector<uint64_t> wrong(KernelPlan::productParameters, 1);
    wrong[7] = 0;
    Status status = (*taking)->multiply(*productKernel().product, wrong);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("cuBLASLt: not supported"), std::string::npos) << status.error().message;
  }
  EXPECT_EQ(ofFake<int()>("fakeCublasLtAlive")(), 0);
}
} // namespace
