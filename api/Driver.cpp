#include "api/Driver.h"

#include "api/KernelFiles.h"
#include "api/KernelTrial.h"
#include "api/Lower.h"
#include "api/Profit.h"
#include "api/ReportContents.h"
#include "api/Verify.h"
#include "codegen/BuildPlan.h"
#include "codegen/plan/Print.h"
#include "runtime/cuda/Driver.h"

using namespace mlir;

namespace fusion {

Driver::Driver(ModuleOp module, std::string path, CompileOptions options)
    : module(module), path(std::move(path)), weights(weightFolder(module, this->path)),
      options(std::move(options)) {
  fusions.model = this->path;
}

/// What GPU 0 says of itself, if it is of that architecture.
static std::optional<TargetInfo> presentDevice(const std::string &target) {
  if (cuda::deviceCount() == 0)
    return std::nullopt;
  auto properties = cuda::deviceProperties(0);
  return properties && properties->arch() == target ? std::optional(properties->target()) : std::nullopt;
}

/// Names the file unless the message does.
Error Driver::inFile(Error error) const {
  if (error.message.find(path) == std::string::npos)
    error.message = path + ": " + error.message;
  return error;
}

PlanOptions Driver::planOptions() const {
  return {options.target.arch, weights, presentDevice(options.target.arch), ScheduleSet(options.schedules),
          options.batchInvariant};
}

Status Driver::lower(ProfitMode profit) {
  if (options.batchInvariant && options.tensorParallel > 1)
    return badInput(
        "a batch-invariant program runs on one rank: how ranks add up depends on the number of rows");
  LowerOptions lowering;
  lowering.fuse = options.fuse;
  lowering.fusions.disabled = options.disabledFusions;
  lowering.patternFiles = options.patternFiles;
  lowering.plan = planOptions();
  lowering.plan.device.reset(); // what fuses follows from the target, not from the machine
  lowering.ranks = options.tensorParallel;
  lowering.vocabulary = options.vocabularyParallel;
  lowering.kvCapacity = options.kvCapacity;
  lowering.assumeFinite = options.assumeFinite;
  lowering.rewrites = recordsRewrites ? &recorded : nullptr;
  const ProfitMode mode = options.fuse ? profit : ProfitMode::Model;
  auto made = makeProfitOracle(mode, lowering.plan, options.cacheFolder);
  if (!made)
    return made.error();
  oracle = std::move(*made);
  lowering.fusions.profit = oracle.get();
  if (Status status = fusion::lower(module, lowering, fusions); !status)
    return inFile(status.error());
  return {};
}

Status Driver::verify() {
  if (Status status = verifyRewrites(recorded); !status)
    return status;
  auto function = entry();
  if (!function)
    return function.error();
  return verifyKernels(*function, planOptions());
}

Report Driver::report() const { return makeReport(fusions, planned ? &*planned : nullptr); }

Result<func::FuncOp> Driver::entry() const {
  auto function = entryFunction(module);
  if (!function)
    return inFile(function.error());
  return function;
}

Result<const ProgramPlan *> Driver::plan() const {
  if (planned)
    return &*planned;
  auto function = entry();
  if (!function)
    return function.error();
  auto plan = buildPlan(*function, planOptions());
  fusions.noPlan = plan ? "" : plan.error().message;
  if (!plan)
    return inFile(plan.error());
  planned = std::move(*plan);
  return &*planned;
}

Result<std::string> Driver::print(Emit what) const {
  if (what == Emit::Mlir) {
    std::string text;
    llvm::raw_string_ostream out(text);
    ModuleOp(module).print(out, OpPrintingFlags());
    out << "\n";
    return text;
  }
  auto plan = this->plan();
  if (!plan)
    return plan.error();
  return what == Emit::Cuda   ? compilableSource(**plan)
         : what == Emit::Plan ? planText(**plan)
                              : planDot(**plan);
}

Status Driver::writeKernels(const std::string &folder) const {
  auto plan = this->plan();
  return plan ? fusion::writeKernels(**plan, folder) : Status(plan.error());
}

Result<std::vector<KernelTrial>> Driver::tryKernels(const SymbolValues &sizes) const {
  if (options.kernels.empty())
    return std::vector<KernelTrial>();
  auto function = entry();
  if (!function)
    return function.error();
  auto plan = this->plan();
  if (!plan)
    return plan.error();
  std::vector<KernelTrial> trials;
  for (const KernelFile &file : options.kernels) {
    auto trial = tryKernel({*function, **plan, planOptions(), options.cacheFolder}, file, sizes);
    if (!trial)
      return trial.error();
    trials.push_back(std::move(*trial));
  }
  return trials;
}

} // namespace fusion
