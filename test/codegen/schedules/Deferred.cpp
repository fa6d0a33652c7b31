#include "Deferred.h"

#include "test/codegen/spills/Spills.h"

#include "ir/base/Parallel.h"
#include "ir/reference/Reference.h"
#include "runtime/CompileKernels.h"
#include "runtime/Executor.h"
#include "runtime/cuda/Driver.h"
#include "runtime/emulate/EmulatedKernel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace fusion::test {

namespace {

void compareOutputs(const std::vector<Tensor> &outputs, const DeferredCase &with) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto difference = compare(outputs[i], with.expected[i]);
    if (!difference) {
      ADD_FAILURE() << difference.error().message;
      continue;
    }
    EXPECT_LE(difference->relativeL2, with.tolerance)
        << "output " << i << ", worst at " << difference->worstIndex << "\n"
        << with.kernel.source;
  }
}

/// GoogleTest's summary knows nothing of what fails after the tests: kernels, and spills.
struct Summary : testing::EmptyTestEventListener {
  void OnTestProgramEnd(const testing::UnitTest &tests) override {
    if (tests.ad_hoc_test_result().Failed())
      fmt::print("[  FAILED  ] checks of kernels, which come after the tests: see above\n");
  }
};

template <class Run>
std::vector<KernelPlan> kernelsOf(const std::vector<Run> &runs) {
  std::vector<KernelPlan> kernels;
  for (const Run &run : runs)
    kernels.push_back(run.kernel);
  return kernels;
}

void runEmulated(EmulatedRun &run, const EmulatedKernel &kernel) {
  SCOPED_TRACE(run.test);
  std::vector<void *> pointers;
  for (auto &value : run.values)
    pointers.push_back(value.data());
  if (Status status = kernel.launch(run.grid[0], run.grid[1], run.grid[2], pointers.data()); !status)
    ADD_FAILURE() << status.error().message << "\n" << run.kernel.source;
  else
    compareOutputs(run.outputs, run);
}

void runAllEmulated(std::vector<EmulatedRun> runs) {
  if (runs.empty())
    return;
  auto compiled = EmulatedKernel::compileAll(kernelsOf(runs), emulationCacheFolder());
  ASSERT_TRUE(compiled) << compiled.error().message;
  for (size_t i = 0; i < runs.size(); ++i)
    runEmulated(runs[i], *(*compiled)[i]);
}

/// Where the executors find them. What does not compile fails there once more, and then names its test.
void compileIntoCache(const std::vector<KernelPlan> &kernels) {
  KernelCache cache(testCacheFolder());
  if (compileKernels(kernels, *deviceTarget(), &cache))
    return;
  // The first that does not compile has stopped the others.
  parallelFor(static_cast<int64_t>(kernels.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      (void)compileKernels(std::span(&kernels[static_cast<size_t>(i)], 1), *deviceTarget(), &cache);
  });
}

void runOnDevice(const DeviceRun &run) {
  SCOPED_TRACE(run.test);
  ExecutorOptions options;
  options.cacheFolder = testCacheFolder();
  options.poison = true;
  auto executor = Executor::create(run.plan, options);
  ASSERT_TRUE(executor) << executor.error().message << "\n" << run.kernel.source;
  auto results = (*executor)->run(run.inputs);
  ASSERT_TRUE(results) << results.error().message << "\n" << run.kernel.source;
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < run.expected.size(); ++i)
    outputs.push_back(results->at("out" + std::to_string(i)));
  compareOutputs(outputs, run);
}

void runAllOnDevice(const std::vector<DeviceRun> &runs) {
  if (runs.empty())
    return;
  compileIntoCache(kernelsOf(runs));
  // Else each executor would open a context of its own.
  const auto context = makeCudaBackend(0, {});
  ASSERT_TRUE(context) << context.error().message;
  for (const DeviceRun &run : runs)
    runOnDevice(run);
}

struct DeferredRuns : testing::Environment {
  void TearDown() override {
    runAllEmulated(std::exchange(emulated, {}));
    runAllOnDevice(std::exchange(onDevice, {}));
  }
  std::vector<EmulatedRun> emulated;
  std::vector<DeviceRun> onDevice;
};

DeferredRuns *const runs = [] {
  auto *made = new DeferredRuns;
  testing::AddGlobalTestEnvironment(made);
  testing::UnitTest::GetInstance()->listeners().Append(new Summary);
  return made;
}();

} // namespace

const TargetInfo *deviceTarget() {
  static const std::optional<TargetInfo> target = []() -> std::optional<TargetInfo> {
    if (cuda::deviceCount() == 0)
      return std::nullopt;
    auto properties = cuda::deviceProperties(0);
    EXPECT_TRUE(properties) << properties.error().message;
    return properties ? std::optional(properties->target()) : std::nullopt;
  }();
  return target ? &*target : nullptr;
}

void runLater(EmulatedRun run) { runs->emulated.push_back(std::move(run)); }
void runLater(DeviceRun run) { runs->onDevice.push_back(std::move(run)); }
void runDeferred() { runs->TearDown(); }

} // namespace fusion::test
