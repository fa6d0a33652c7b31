#include "test/recipes/Recipes.h"

#include "api/Trial.h"
#include "codegen/plan/Print.h"
#include "ir/base/Progress.h"
#include "ir/reference/Reference.h"
#include "runtime/CompileKernels.h"
#include "runtime/Executor.h"
#include "runtime/cuda/Driver.h"
#include "test/recipes/Toy.h"

#include "mlir/Parser/Parser.h"

#include <set>

using namespace mlir;

namespace fusion::test {

MLIRContext &context() {
  setQuiet(true);
  static MLIRContext *shared = [] {
    DialectRegistry registry;
    registerDialects(registry);
    registry.insert<toy::ToyDialect>();
    auto *made = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    made->loadAllAvailableDialects();
    return made;
  }();
  return *shared;
}

OwningOpRef<ModuleOp> parse(std::string text, const std::string &type) {
  for (size_t at; (at = text.find("TYPE")) != std::string::npos;)
    text.replace(at, 4, type);
  auto module = parseSourceString<ModuleOp>(text, ParserConfig(&context()));
  EXPECT_TRUE(module) << text;
  return module;
}

Lowered::Lowered(const std::string &text, const std::string &type, CompileOptions options)
    : module(parse(text, type)) {
  if (!module)
    return;
  options.target = {"sm_90a"};
  driver = std::make_unique<Driver>(*module, "toy.mlir", std::move(options));
  driver->recordRewrites();
  Status status = driver->lower(ProfitMode::Model);
  EXPECT_TRUE(status) << status.error().message;
  lowered = bool(status);
}

const ProgramPlan &Lowered::plan() {
  if (!planned) {
    auto made = driver->plan();
    EXPECT_TRUE(made) << made.error().message;
    planned = made ? **made : ProgramPlan();
  }
  return *planned;
}

void Lowered::isVerified() {
  Status status = driver->verify();
  EXPECT_TRUE(status) << status.error().message;
}

void Lowered::runsLikeTheReference(const SymbolValues &symbols) {
  runsLike(*driver->entry(), plan(), symbols);
}

void Lowered::compiles() {
  for (const char *target : {"sm_80", "sm_90a"})
    compilesFor(plan(), *TargetInfo::find(target));
}

std::vector<std::string> Lowered::schedules() {
  std::set<std::string> names;
  for (const KernelPlan &kernel : plan().kernels)
    if (!kernel.isLibraryCall)
      names.insert(kernel.schedule);
  return {names.begin(), names.end()};
}

size_t Lowered::countIn(llvm::StringRef schedule, llvm::StringRef op) {
  size_t count = 0;
  module->walk([&](GroupOp group) {
    if (group.getSchedule() == schedule)
      count += static_cast<size_t>(llvm::count_if(
          group.getBody().front(), [&](Operation &one) { return one.getName().getStringRef() == op; }));
  });
  return count;
}

void runsLike(func::FuncOp function, const ProgramPlan &plan, const SymbolValues &symbols) {
  auto interpreter = Interpreter::create(function, "");
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  std::mt19937 random(7);
  const NamedTensors inputs = randomInputs(interpreter->inputs(), symbols, {}, random);
  auto expected = interpreter->run(inputs);
  ASSERT_TRUE(expected) << expected.error().message;
  ExecutorOptions options;
  // On a machine with a GPU the kernels run there.
  options.target = cuda::deviceCount() > 0 ? ExecutorOptions::Target::Cuda : ExecutorOptions::Target::Emulate;
  options.poison = true;
  auto executor = Executor::create(plan, options);
  ASSERT_TRUE(executor) << executor.error().message << cudaSource(plan);
  auto actual = (*executor)->run(inputs);
  ASSERT_TRUE(actual) << actual.error().message << cudaSource(plan);
  for (const auto &[name, tensor] : *expected) {
    auto difference = compare(actual->at(name), tensor);
    ASSERT_TRUE(difference) << difference.error().message;
    EXPECT_LE(difference->relativeL2, roundingTolerance(tensor.type(), inputs))
        << name << ": element " << difference->worstIndex << cudaSource(plan);
  }
}

void compilesFor(const ProgramPlan &plan, const TargetInfo &target) {
  if (!Nvrtc::instance())
    return;
  KernelCache cache;
  auto compiled = compileKernels(plan.kernels, target, &cache);
  EXPECT_TRUE(compiled) << target.name << ": " << compiled.error().message;
}

} // namespace fusion::test
