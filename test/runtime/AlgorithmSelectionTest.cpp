// The choice between kernels and a library for matmuls, and the calls, over a stand-in for cuBLASLt.
#include "MatmulPlan.h"
#include "TimingBackend.h"

#include "runtime/AlgorithmSelection.h"
#include "runtime/CublasLtRunner.h"
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

class Selection : public testing::Test {
protected:
  void SetUp() override {
    setenv("FUSION_CUBLASLT", FUSION_FAKE_CUBLASLT, 1);
    unsetenv("FUSION_MATMUL");
    options.target = ExecutorOptions::Target::Emulate;
    options.cacheFolder = folder.path;
  }
  void TearDown() override { unsetenv("FUSION_MATMUL"); }

  AlgorithmSelection selection() {
    AlgorithmSelection made(plan, options);
    made.timeOn([this](std::span<const KernelPlan> kernels) -> Result<std::unique_ptr<Backend>> {
      ++measurements;
      return std::unique_ptr<Backend>(std::make_unique<TimingBackend>(
          kernels, [this](const KernelPlan &kernel, const Backend::Launch &launch) {
            measuredRows = launch.grid[0];
            return kernel.name == "ours" ? ours : kernel.isLibraryCall ? library : other;
          }));
    });
    return made;
  }
  static Status decide(AlgorithmSelection &selection, int64_t rows, bool mayMeasure = true) {
    return selection.decide({{"rows", rows}}, mayMeasure, "a device");
  }
  static bool byLibrary(const AlgorithmSelection &selection, size_t step) {
    const uint32_t candidates[] = {0, 1};
    return selection.choose(step, candidates) == 1;
  }

  TemporaryFolder folder;
  ExecutorOptions options;
  ProgramPlan plan = twoMatmuls();
  double ours = 5, library = 3, other = 1;
  int measurements = 0;
  uint32_t measuredRows = 0;
};

TEST_F(Selection, ThePlanIsValidAndCountsOneAlternative) {
  ASSERT_TRUE(verify(plan)) << verify(plan).error().message;
  EXPECT_EQ(plan.launchesOfRun(), 2);
  EXPECT_EQ(plan.launches().size(), 6u);
}

TEST_F(Selection, TheFasterOneUpToEachPowerOfTwo) {
  AlgorithmSelection chosen = selection();
  EXPECT_FALSE(chosen.empty());
  ASSERT_TRUE(decide(chosen, 100));
  EXPECT_TRUE(byLibrary(chosen, 0) && byLibrary(chosen, 1)); // 3 + 1 against 5
  EXPECT_EQ(chosen.text(), "2 of 2 matmuls of many rows by the library, 0 by kernels (cuBLASLt 13.1.0)");
  EXPECT_EQ(measurements, 1); // the two are alike
  ours = 3.5;
  ASSERT_TRUE(decide(chosen, 128));
  EXPECT_TRUE(byLibrary(chosen, 0));
  EXPECT_EQ(measurements, 1);
  ASSERT_TRUE(decide(chosen, 129));
  EXPECT_FALSE(byLibrary(chosen, 0) || byLibrary(chosen, 1));
  EXPECT_EQ(measurements, 2);
  for (int64_t few : {0, 1, 15}) {
    ASSERT_TRUE(decide(chosen, few));
    EXPECT_FALSE(byLibrary(chosen, 0));
    EXPECT_EQ(chosen.text(), "");
  }
  EXPECT_EQ(measurements, 2);
}

TEST_F(Selection, AreKeptOnDisk) {
  AlgorithmSelection first = selection();
  ASSERT_TRUE(decide(first, 100));
  ours = 1;
  AlgorithmSelection second = selection();
  ASSERT_TRUE(decide(second, 70));
  EXPECT_TRUE(byLibrary(second, 0));
  EXPECT_EQ(measurements, 1);
  plan.kernels[0].source = "ours, better";
  AlgorithmSelection third = selection();
  ASSERT_TRUE(decide(third, 70));
  EXPECT_FALSE(byLibrary(third, 0));
  EXPECT_EQ(measurements, 2);
  ASSERT_TRUE(third.decide({{"rows", 70}}, true, "another device"));
  EXPECT_EQ(measurements, 2); // decided already
}

/// Two kernels of ours for up to 64 rows, without a library.
ProgramPlan twoKernels() {
  ProgramPlan plan = twoMatmuls();
  KernelPlan other = plan.kernels[0];
  other.name = "other";
  other.source.replace(other.source.find("ours"), 4, "other");
  plan.kernels = {plan.kernels[0], other};
  for (Step &step : plan.steps) {
    KernelLaunch launch = step.alternatives[0].launches[0];
    launch.kernel = 1;
    step.alternatives[1] = {{{Dim::symbol("rows"), 1, 64}}, {launch}, otherKernelVariant};
  }
  plan.buffers.erase(plan.buffers.begin() + 4); // what was between the launches
  plan.buffers.erase(plan.buffers.begin() + 2);
  for (KernelLaunch *launch : plan.launches())
    for (KernelArgument &argument : launch->arguments)
      if (BufferId &buffer = *bufferOf(argument); buffer > 2)
        buffer = buffer == 3 ? 2 : 3;
  plan.outputs[0].buffer = 3;
  return plan;
}

TEST_F(Selection, BetweenTwoKernels) {
  plan = twoKernels();
  ASSERT_TRUE(verify(plan)) << verify(plan).error().message;
  setenv("FUSION_CUBLASLT", "0", 1);
  ours = 0.5; // the other takes 1
  AlgorithmSelection chosen = selection();
  ASSERT_TRUE(decide(chosen, 10, /*mayMeasure=*/false));
  EXPECT_FALSE(byLibrary(chosen, 0));
  EXPECT_EQ(measurements, 0);
  ASSERT_TRUE(decide(chosen, 10));
  EXPECT_FALSE(byLibrary(chosen, 0));
  EXPECT_EQ(measurements, 1);
  ours = 2;
  ASSERT_TRUE(decide(chosen, 16)); // up to the same power of two
  EXPECT_EQ(chosen.text(), "0 of 2 matmuls by another kernel");
  ASSERT_TRUE(decide(chosen, 17));
  EXPECT_TRUE(byLibrary(chosen, 0) && byLibrary(chosen, 1));
  EXPECT_EQ(chosen.text(), "2 of 2 matmuls by another kernel");
  EXPECT_EQ(measurements, 2);
  ASSERT_TRUE(decide(chosen, 65)); // for which there is one
  EXPECT_FALSE(byLibrary(chosen, 0));
  EXPECT_EQ(chosen.text(), "");
  setenv("FUSION_MATMUL", "kernel", 1);
  AlgorithmSelection forced = selection();
  ASSERT_TRUE(decide(forced, 17));
  EXPECT_FALSE(byLibrary(forced, 0));
  setenv("FUSION_MATMUL", "other", 1);
  AlgorithmSelection others = selection();
  ASSERT_TRUE(decide(others, 17));
  EXPECT_TRUE(byLibrary(others, 0));
  EXPECT_EQ(measurements, 2);
}

/// Rows that stand for the positions of a cache: the first step of many is not what they are measured by.
TEST_F(Selection, AtTheLengthThatCachesTypicallyHave) {
  plan = twoKernels();
  for (Step &step : plan.steps)
    step.alternatives[1].when = {{Dim::symbol("rows"), 1, 200}};
  plan.inputs[0].strides = {64, 1};
  plan.buffers[0].shape[0] = 300;
  setenv("FUSION_CUBLASLT", "0", 1);
  AlgorithmSelection chosen = selection();
  ASSERT_TRUE(decide(chosen, 3));
  EXPECT_EQ(measuredRows, 150u);
  EXPECT_TRUE(byLibrary(chosen, 0));
  plan.buffers[0].shape[0] = 600; // at 300 there is no choice
  AlgorithmSelection asGiven = selection();
  ASSERT_TRUE(decide(asGiven, 5));
  EXPECT_EQ(measuredRows, 5u);
}

/// What one kernel gains over two must be more than the overlap of a launch with the one before it.
TEST_F(Selection, OneKernelForTwo) {
  plan = twoKernels();
  for (Step &step : plan.steps) {
    std::vector<KernelLaunch> &launches = step.alternatives[0].launches;
    launches.push_back(launches.front());
  }
  ASSERT_TRUE(verify(plan)) << verify(plan).error().message;
  setenv("FUSION_CUBLASLT", "0", 1);
  auto takesOther = [&](double first, double second) {
    ours = first / 2;
    other = second;
    TemporaryFolder fresh;
    options.cacheFolder = fresh.path;
    AlgorithmSelection chosen = selection();
    EXPECT_TRUE(decide(chosen, 10));
    return byLibrary(chosen, 0);
  };
  EXPECT_FALSE(takesOther(17.5, 17.4));
  EXPECT_FALSE(takesOther(17.5, 17.1));
  EXPECT_TRUE(takesOther(17.5, 16.9));
  EXPECT_TRUE(takesOther(58, 57.8)) << "of long kernels any gain counts";
}

/// Our two kernels and the library, where the sizes take all of them.
TEST_F(Selection, BetweenTwoKernelsAndTheLibrary) {
  KernelPlan other = plan.kernels[0];
  other.name = "other";
  other.source.replace(other.source.find("ours"), 4, "other");
  plan.kernels.push_back(other);
  for (Step &step : plan.steps) {
    KernelLaunch launch = step.alternatives[0].launches[0];
    launch.kernel = 3;
    step.alternatives.insert(step.alternatives.begin() + 1,
                             {{{Dim::symbol("rows"), 1, 64}}, {launch}, otherKernelVariant});
  }
  ASSERT_TRUE(verify(plan)) << verify(plan).error().message;
  const uint32_t all[] = {0, 1, 2}, ofKernels[] = {0, 1}, ofMany[] = {0, 2};
  AlgorithmSelection chosen = selection();
  ASSERT_TRUE(decide(chosen, 20)); // 5, 1, and 3 + 1
  EXPECT_EQ(chosen.choose(0, all), 1u);
  EXPECT_EQ(chosen.text(), "0 of 2 matmuls of many rows by the library, 2 by kernels, 2 of these by their "
                           "other kernel (cuBLASLt 13.1.0)");
  ASSERT_TRUE(decide(chosen, 10)); // too few for the library
  EXPECT_EQ(chosen.choose(0, ofKernels), 1u);
  ASSERT_TRUE(decide(chosen, 100)); // too many for the other kernel
  EXPECT_EQ(chosen.choose(0, ofMany), 2u);
  EXPECT_EQ(measurements, 3);
  AlgorithmSelection again = selection(); // from the cache
  ASSERT_TRUE(decide(again, 20));
  EXPECT_EQ(again.choose(0, all), 1u);
  EXPECT_EQ(measurements, 3);
  ours = 0.25;
  AlgorithmSelection third = selection();
  ASSERT_TRUE(decide(third, 16));
  EXPECT_EQ(third.choose(0, all), 0u);
  ours = 5;
  for (const auto &[variant, candidate] : {std::pair("kernel", 0u), {"other", 1u}, {"library", 2u}}) {
    setenv("FUSION_MATMUL", variant, 1);
    AlgorithmSelection forced = selection();
    ASSERT_TRUE(decide(forced, 20));
    EXPECT_EQ(forced.choose(0, all), candidate);
    ASSERT_TRUE(decide(forced, 10)); // the library is none of the candidates
    EXPECT_EQ(forced.choose(0, ofKernels), candidate % 2);
  }
  unsetenv("FUSION_MATMUL");
  setenv("FUSION_CUBLASLT", "0", 1); // our kernels are measured without it
  plan.kernels[3].source += "// another";
  AlgorithmSelection without = selection();
  ASSERT_TRUE(decide(without, 20));
  EXPECT_EQ(without.choose(0, all), 1u);
  EXPECT_NE(without.text().find("FUSION_CUBLASLT is 0"), std::string::npos) << without.text();
}

/// Emulation's times say nothing.
TEST_F(Selection, EmulationTakesTheFirstKernel) {
  plan = twoKernels();
  AlgorithmSelection chosen(plan, options);
  ASSERT_TRUE(decide(chosen, 10));
  EXPECT_FALSE(byLibrary(chosen, 0));
}

TEST_F(Selection, NothingIsMeasuredWhileAGraphIsRecorded) {
  AlgorithmSelection chosen = selection();
  ASSERT_TRUE(decide(chosen, 100, /*mayMeasure=*/false));
  EXPECT_FALSE(byLibrary(chosen, 0));
  EXPECT_EQ(measurements, 0);
  ASSERT_TRUE(decide(chosen, 100));
  EXPECT_TRUE(byLibrary(chosen, 0));
}

TEST_F(Selection, AFailureLeavesTheKernelAndSaysWhy) {
  AlgorithmSelection chosen(plan, options);
  chosen.timeOn([](std::span<const KernelPlan>) -> Result<std::unique_ptr<Backend>> {
    return environment("no memory");
  });
  ASSERT_TRUE(decide(chosen, 100));
  EXPECT_FALSE(byLibrary(chosen, 0));
  EXPECT_EQ(chosen.text(),
            "0 of 2 matmuls of many rows by the library, 2 by kernels (cuBLASLt 13.1.0; no memory)");
}

TEST_F(Selection, AsTheUserSays) {
  setenv("FUSION_MATMUL", "library", 1);
  ours = 0;
  AlgorithmSelection forced = selection();
  ASSERT_TRUE(decide(forced, 100));
  EXPECT_TRUE(byLibrary(forced, 0));
  setenv("FUSION_MATMUL", "kernel", 1);
  AlgorithmSelection kernels = selection();
  ASSERT_TRUE(decide(kernels, 100));
  EXPECT_FALSE(byLibrary(kernels, 0));
  EXPECT_NE(kernels.text().find("FUSION_MATMUL is kernel"), std::string::npos) << kernels.text();
  setenv("FUSION_MATMUL", "both", 1);
  AlgorithmSelection wrong = selection();
  EXPECT_FALSE(decide(wrong, 100));
  EXPECT_EQ(measurements, 0);

  setenv("FUSION_MATMUL", "library", 1);
  setenv("FUSION_CUBLASLT", "0", 1);
  AlgorithmSelection missing = selection();
  Status status = decide(missing, 100);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::Environment);
  unsetenv("FUSION_MATMUL");
  AlgorithmSelection without = selection();
  ASSERT_TRUE(decide(without, 100));
  EXPECT_FALSE(byLibrary(without, 0));
  EXPECT_NE(without.text().find("FUSION_CUBLASLT is 0"), std::string::npos) << without.text();
}

TEST_F(Selection, ARunHasTheLaunchesAndTemporariesOfOneAlternative) {
  auto ours = planShapes(plan, {{"rows", 100}});
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->launches.size(), 2u);
  EXPECT_TRUE(ours->launches[1].overlapsPrevious);
  auto mixed = planShapes(plan, {{"rows", 100}}, nullptr,
                          [](size_t step, std::span<const uint32_t>) { return step == 1 ? 1u : 0u; });
  ASSERT_TRUE(mixed);
  ASSERT_EQ(mixed->launches.size(), 3u);
  EXPECT_EQ(mixed->launches[1].source, 4u);
  EXPECT_FALSE(mixed->launches[1].overlapsPrevious);
  EXPECT_FALSE(mixed->launches[2].overlapsPrevious); // a library's kernel lets nobody start early
  EXPECT_GT(mixed->arenaBytes, ours->arenaBytes);
}

TEST_F(Selection, AStepToSizesOfAnotherClassIsPlannedAnew) {
  ShapePlanner planner(plan);
  ASSERT_EQ(planner.sizes().table.symbols().front(), "rows");
  std::vector<uint32_t> changed;
  auto from = [&](int64_t rows) {
    auto shapes = planner.plan({{"rows", rows}}, nullptr, [&](size_t, std::span<const uint32_t> candidates) {
      return candidates.back();
    });
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
  EXPECT_EQ(changed.size(), 4u); // all of the library variant
  EXPECT_FALSE(planner.update(many, values(129), changed));
  EXPECT_FALSE(planner.update(many, values(15), changed));
  EXPECT_TRUE(planner.update(few, values(9), changed));
  EXPECT_FALSE(planner.update(few, values(16), changed));
}

TEST_F(Selection, ALibraryWithoutItsPlaceInThePlanIsAnError) {
  ProgramPlan wrong = plan;
  wrong.steps[0].alternatives.erase(wrong.steps[0].alternatives.begin()); // for fewer rows there is nothing
  EXPECT_FALSE(verify(wrong));
  wrong = plan;
  wrong.steps[0].alternatives[1].variant = kernelVariant;
  EXPECT_FALSE(verify(wrong));
  wrong = plan;
  wrong.steps[0].choice = Step::Choice::Predicate;
  EXPECT_FALSE(verify(wrong));
  wrong = plan;
  pointer(wrong.steps[0].alternatives[1].launches[1], 1).buffer = 2; // does not write what the kernel does
  EXPECT_FALSE(verify(wrong));
  wrong = plan;
  wrong.kernels[2].parameters.pop_back();
  EXPECT_FALSE(verify(wrong));
  auto back = programPlanFromJson(toJson(plan));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->kernels[2].matmul, plan.kernels[2].matmul);
  EXPECT_EQ(back->steps[0].alternatives[1].variant, libraryVariant);
  EXPECT_EQ(toJson(*back), toJson(plan));
}

/// a is m x k, b n x k.
Status multiplyOnce(CublasLtRunner &runner, const float *a, const float *b, float *c, int64_t m, int64_t n,
                    int64_t k) {
  std::vector<uint64_t> arguments{reinterpret_cast<uint64_t>(a), reinterpret_cast<uint64_t>(b),
                                  reinterpret_cast<uint64_t>(c)};
  for (int64_t number : {m, n, k, int64_t(1), k, k, n, m * k, n * k, m * n})
    arguments.push_back(static_cast<uint64_t>(number));
  return runner.matmul(*libraryMatmul().matmul, arguments);
}

TEST_F(Selection, AlgorithmsFitThePointersAndAreTriedOnce) {
  auto backend = makeEmulatedBackend({});
  ASSERT_TRUE(backend);
  auto *products = ofFake<int()>("fakeCublasLtMatmuls"), *algorithm = ofFake<int()>("fakeCublasLtAlgorithm");
  {
    auto trying = CublasLtRunner::make(**backend, folder.path, /*mayTry=*/true);
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
    auto taking = CublasLtRunner::make(**backend, folder.path, /*mayTry=*/false);
    ASSERT_TRUE(taking);
    before = products();
    ASSERT_TRUE(multiplyOnce(**taking, a, b, c, 5, 19, 3));
    EXPECT_EQ(products() - before, 1);
    EXPECT_EQ(algorithm(), 0);
    ASSERT_TRUE(multiplyOnce(**taking, a + 1, b, c, 5, 19, 3));
    EXPECT_EQ(algorithm(), 1); // 0 wants 16 bytes
    std::vector<uint64_t> wrong(LibraryMatmul::parameters, 1);
    wrong[7] = 0;
    Status status = (*taking)->matmul(*libraryMatmul().matmul, wrong);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("cuBLASLt: not supported"), std::string::npos)
        << status.error().message;
  }
  EXPECT_EQ(ofFake<int()>("fakeCublasLtAlive")(), 0);
}
} // namespace
