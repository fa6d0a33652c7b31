#include "PlanChecks.h"

#include "codegen/plan/Print.h"
#include "ir/base/Progress.h"
#include "ir/dialect/Types.h"
#include "ir/reference/Reference.h"
#include "runtime/CompileKernels.h"
#include "runtime/Executor.h"
#include "runtime/cuda/Driver.h"
#include "runtime/emulate/EmulatedKernel.h"
#include "test/codegen/spills/Spills.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <cmath>
#include <fmt/format.h>
#include <random>
#include <set>

using namespace mlir;

namespace fusion::test {

MLIRContext &context() {
  setQuiet(true);
  static MLIRContext *shared = [] {
    DialectRegistry registry;
    registerDialects(registry);
    auto *made = new MLIRContext(registry);
    made->loadAllAvailableDialects();
    return made;
  }();
  return *shared;
}

OwningOpRef<ModuleOp> parse(const std::string &text) {
  auto module = parseSourceString<ModuleOp>(text, ParserConfig(&context()));
  EXPECT_TRUE(module) << text;
  return module;
}

func::FuncOp mainOf(ModuleOp module) { return module.lookupSymbol<func::FuncOp>("main"); }

Tensor randomTensor(DType type, Shape shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  if (type == DType::F64) {
    Tensor doubles = Tensor::uninitialized(type, std::move(shape));
    std::normal_distribution<double> normal(0, 1.5);
    for (int64_t i = 0; i < doubles.size(); ++i)
      doubles.as<double>()[i] = normal(random);
    return doubles;
  }
  if (isFloat(type)) {
    Tensor floats = Tensor::uninitialized(DType::F32, std::move(shape));
    std::normal_distribution<float> normal(0, 1.5f);
    for (int64_t i = 0; i < floats.size(); ++i)
      floats.as<float>()[i] = normal(random);
    return floats.convertedTo(type);
  }
  Tensor integers = Tensor::uninitialized(DType::I64, std::move(shape));
  bool isSigned = isSignedInteger(type);
  for (int64_t i = 0; i < integers.size(); ++i) {
    auto value = static_cast<int64_t>(random() % 19);
    integers.as<int64_t>()[i] = type == DType::Bool ? value % 2 : isSigned ? value - 9 : value;
  }
  return integers.convertedTo(type);
}

static NamedTensors inputsFor(const ProgramPlan &plan, const CheckOptions &options) {
  NamedTensors inputs = options.inputs;
  uint64_t seed = 1;
  for (const PortPlan &port : plan.inputs) {
    Shape shape;
    for (const Dim &dim : port.shape) {
      auto size = dim.evaluate(options.symbols);
      EXPECT_TRUE(size) << size.error().message;
      shape.push_back(size ? *size : 0);
    }
    if (!inputs.count(port.name))
      inputs[port.name] = randomTensor(port.type, shape, seed);
    ++seed;
  }
  return inputs;
}

static void checkSpills(const ProgramPlan &plan, Targets targets) {
  for (const KernelPlan &kernel : plan.kernels) // f64 functions and divisions are calls
    checkSpills(kernel, targets, kernel.source.find("f64") != std::string::npos);
}

/// What relative L2 comes of values in f32 that differ in their last bits and then round to `type`: one
/// element in a thousand lands on the neighbouring value, at most a unit of the last place away.
static double roundingFlips(DType type) {
  const double lastPlace = type == DType::F16 ? 0x1p-10 : type == DType::BF16 ? 0x1p-7 : 0;
  return lastPlace * std::sqrt(1e-3);
}

static void compareOutput(const std::string &name, const Tensor &actual, const Tensor &expected,
                          double tolerance, const ProgramPlan &plan) {
  EXPECT_EQ(shapeString(actual.shape()), shapeString(expected.shape())) << name;
  auto difference = compare(actual, expected);
  ASSERT_TRUE(difference) << name << ": " << difference.error().message;
  double limit = isFloat(expected.type()) ? std::max(tolerance, roundingFlips(expected.type())) : 0;
  EXPECT_LE(difference->relativeL2, limit)
      << name << ": element " << difference->worstIndex << " differs by " << difference->maxAbs << "\n"
      << planText(plan) << cudaSource(plan);
}

namespace {
/// A plan that is still to run, and what it must make.
struct Pending {
  std::string test; ///< its name
  ProgramPlan plan;
  NamedTensors inputs, expected;
  double tolerance = 0;
};

/// Runs plans when the test program ends: on a GPU if there is one, else emulated, the kernels of all
/// compiled together, which takes a fraction of the time. What fails names its test.
class PlanRuns : public testing::Environment {
public:
  void add(Pending run) { pending.push_back(std::move(run)); }

  void TearDown() override {
    compileTogether();
    for (const Pending &each : pending)
      run(each);
    pending.clear();
  }

private:
  /// Into the cache, where the executors find them.
  void compileTogether() const {
    std::vector<KernelPlan> kernels;
    for (const Pending &each : pending)
      for (const KernelPlan &kernel : each.plan.kernels)
        if (!kernel.isLibraryCall)
          kernels.push_back(kernel);
    if (cuda::deviceCount() == 0) {
      auto compiled = EmulatedKernel::compileAll(kernels, emulationCacheFolder());
      EXPECT_TRUE(compiled) << compiled.error().message;
      return;
    }
    auto device = cuda::deviceProperties(0);
    ASSERT_TRUE(device) << device.error().message;
    KernelCache cache(testCacheFolder());
    auto compiled = compileKernels(kernels, device->target(), &cache);
    EXPECT_TRUE(compiled) << compiled.error().message;
  }

  static void run(const Pending &each) {
    SCOPED_TRACE(each.test);
    ExecutorOptions options;
    options.target =
        cuda::deviceCount() > 0 ? ExecutorOptions::Target::Cuda : ExecutorOptions::Target::Emulate;
    options.cacheFolder = testCacheFolder();
    options.poison = true;
    auto executor = Executor::create(each.plan, options);
    ASSERT_TRUE(executor) << executor.error().message << "\n" << cudaSource(each.plan);
    auto actual = (*executor)->run(each.inputs);
    ASSERT_TRUE(actual) << actual.error().message << "\n" << planText(each.plan) << cudaSource(each.plan);
    actual = (*executor)->fetch(*actual); // caches stay on the device
    ASSERT_TRUE(actual) << actual.error().message;
    ASSERT_EQ(actual->size(), each.expected.size());
    for (auto &[name, tensor] : each.expected)
      compareOutput(name, actual->at(name), tensor, each.tolerance, each.plan);
  }

  std::vector<Pending> pending;
};

PlanRuns *const planRuns = [] {
  auto *made = new PlanRuns;
  testing::AddGlobalTestEnvironment(made);
  return made;
}();
} // namespace

void checkFunction(func::FuncOp function, const CheckOptions &options) {
  PlanOptions planOptions;
  planOptions.device = options.device;
  auto plan = buildPlan(function, planOptions);
  ASSERT_TRUE(plan) << plan.error().message;
  if (options.launches >= 0) {
    EXPECT_EQ(plan->launchesOfRun(), options.launches) << planText(*plan);
  }
  if (cuda::deviceCount() == 0) // device time is for running
    checkSpills(*plan, options.targets);

  NamedTensors inputs = inputsFor(*plan, options);
  auto interpreter = Interpreter::create(function, "");
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  auto expected = interpreter->run(inputs);
  ASSERT_TRUE(expected) << expected.error().message;
  const testing::TestInfo *info = testing::UnitTest::GetInstance()->current_test_info();
  planRuns->add({fmt::format("{}.{}", info->test_suite_name(), info->name()), std::move(*plan),
                 std::move(inputs), std::move(*expected), options.tolerance});
}

void check(const std::string &text, const CheckOptions &options) {
  auto module = parse(text);
  if (module)
    checkFunction(mainOf(*module), options);
}

ProgramPlan planOf(const std::string &text) {
  auto module = parse(text);
  auto plan = buildPlan(mainOf(*module), {.baseFolder = "/models"});
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : ProgramPlan();
}

std::string planError(const std::string &text) {
  auto module = parse(text);
  if (!module)
    return {};
  auto plan = buildPlan(mainOf(*module), {});
  EXPECT_FALSE(plan) << text;
  return plan ? "" : plan.error().message;
}

} // namespace fusion::test
