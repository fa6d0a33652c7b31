// fusion-opt: import, rewrite, explain and print a graph.
#include "CompileFlags.h"
#include "Output.h"
#include "Tool.h"

#include "api/Driver.h"
#include "api/Lower.h"
#include "api/Sampling.h"
#include "ir/base/MappedFile.h"
#include "ir/base/Progress.h"
#include "ir/base/TextNesting.h"

#include "mlir/IR/AsmState.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Remark/RemarkStreamer.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;
using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory output("What comes out"), category("How it is compiled"),
    mlirCategory("MLIR options, as in mlir-opt");
cl::opt<std::string> inputFile(cl::Positional,
                               cl::desc("[INPUT]: a graph, .onnx or .mlir (default -, MLIR text on stdin)"),
                               cl::init("-"), cl::cat(category));
cl::opt<std::string>
    outputFile("o",
               cl::desc("Output file; with --emit=cuda and a / at its end, a folder with one file a "
                        "kernel (default -, stdout)"),
               cl::value_desc("OUT"), cl::init("-"), cl::cat(output));
cl::opt<bool> fuseFlag("fuse", cl::desc("Run the default pipeline: normalise, raise, fuse"),
                       cl::cat(category));
CompileFlags flags(category);
VocabularyFlag vocabulary(category);
WordOption target = targetOption(category);
KernelFlag kernels(category);
cl::list<std::string> required("require",
                               cl::desc("Exit 1 unless pattern NAME fired exactly N times; repeatable"),
                               cl::value_desc("NAME=N"), cl::cat(output));
cl::opt<bool> requirePlan("require-plan",
                          cl::desc("Exit 1 unless kernels of the target compute the whole graph"),
                          cl::cat(output));
cl::opt<bool> verifyFusions(
    "verify-fusions",
    cl::desc("Check every rewrite against the ops it replaced and every group's kernel against its "
             "body, on random inputs"),
    cl::cat(output));
cl::opt<std::string> reportFile("report", cl::desc("Write a report: .json, .md or .html"),
                                cl::value_desc("FILE"), cl::cat(output));
WordOption emitKind("emit", "What is printed", "mlir", output,
                    {{"mlir", "the graph"},
                     {"cuda", "the kernels' source"},
                     {"plan", "kernels, buffers and launches"},
                     {"dot", "the plan as a Graphviz drawing"}});

/// Options whose work MlirOptMain does not know.
bool needsOwnDriver() {
  return llvm::StringRef(inputFile).ends_with(".onnx") || fuseFlag || !reportFile.empty() ||
         emitKind != "mlir" || verifyFusions || requirePlan || !required.empty() || !flags.patterns.empty() ||
         !flags.fuseDisable.empty() || !kernels.files().empty() || flags.tensorParallel != 1 ||
         vocabulary.value || flags.kvCapacity.getNumOccurrences() || flags.noAssumeFinite ||
         flags.batchInvariant || flags.sample.getNumOccurrences() || !flags.dims.empty() ||
         !flags.constants.empty();
}

Status checkOptions() {
  if (flags.kvCapacity.getNumOccurrences() && !fuseFlag)
    return badInput("--kv-capacity needs --fuse");
  if (flags.noAssumeFinite && !fuseFlag)
    return badInput("--no-assume-finite needs --fuse");
  if (flags.batchInvariant && !fuseFlag)
    return badInput("--batch-invariant needs --fuse");
  if (!fuseFlag && (!reportFile.empty() || !required.empty() || !flags.patterns.empty() ||
                    !flags.fuseDisable.empty() || flags.tensorParallel != 1 || requirePlan))
    return badInput("--report, --require, --require-plan, --patterns, --fuse-disable and --tp need --fuse");
  for (const Status &status :
       {vocabulary.check(flags), flags.check(), checkReportFile(reportFile), kernels.check()})
    if (!status)
      return status;
  for (const std::string &entry : required)
    if (!parseRequirement(entry))
      return badInput("--require takes NAME=N, not '" + entry + "'");
  return {};
}

Status checkRequirements(const Report &report) {
  for (const std::string &entry : required) {
    auto [name, times] = *parseRequirement(entry);
    if (Status status = report.require(name, times); !status)
      return status;
  }
  return {};
}

/// As MlirOptMain does: printed as diagnostics, or into a file.
Status enableRemarks(MLIRContext &context, const MlirOptMainConfig &config) {
  if (!config.shouldEmitRemarks())
    return {};
  // A kind without a filter of its own is silent, whatever the filter of all kinds says.
  auto wanted = [all = config.getRemarksAllFilter()](const std::string &own) -> std::optional<std::string> {
    const std::string &filter = own.empty() ? all : own;
    return filter.empty() ? std::nullopt : std::optional(filter);
  };
  remark::RemarkCategories categories{
      wanted(""), wanted(config.getRemarksPassedFilter()), wanted(config.getRemarksMissedFilter()),
      wanted(config.getRemarksAnalyseFilter()), wanted(config.getRemarksFailedFilter())};
  std::unique_ptr<remark::detail::RemarkEmittingPolicyBase> policy;
  if (config.getRemarkPolicy() == RemarkPolicy::REMARK_POLICY_ALL)
    policy = std::make_unique<remark::RemarkEmittingPolicyAll>();
  else
    policy = std::make_unique<remark::RemarkEmittingPolicyFinal>();
  if (config.getRemarkFormat() == RemarkFormat::REMARK_FORMAT_STDOUT)
    return succeeded(remark::enableOptimizationRemarks(context, nullptr, std::move(policy), categories, true))
               ? Status()
               : badInput("the remark filters are not valid");
  bool yaml = config.getRemarkFormat() == RemarkFormat::REMARK_FORMAT_YAML;
  std::string file = config.getRemarksOutputFile();
  if (file.empty())
    file = yaml ? "mlir-remarks.yaml" : "mlir-remarks.bitstream";
  return succeeded(remark::enableOptimizationRemarksWithLLVMStreamer(
             context, file, yaml ? llvm::remarks::Format::YAML : llvm::remarks::Format::Bitstream,
             std::move(policy), categories))
             ? Status()
             : badInput("cannot write remarks to " + file);
}

Status runOwn(const MlirOptMainConfig &config) {
  auto context = makeContext();
  if (Status status = enableRemarks(*context, config); !status)
    return status;
  const LoadOptions loading = flags.loading();
  auto module = loadModule(*context, inputFile,
                           {.constantTexts = loading.constantTexts,
                            .sharedCaches = loading.sharedCaches,
                            .dims = loading.dims,
                            .trustPaths = loading.trustPaths});
  if (!module)
    return module.error();
  if (auto how = flags.sampling()) {
    auto entry = entryFunction(**module);
    if (Status status = entry ? appendSampling(*entry, *how) : Status(entry.error()); !status)
      return Error{status.error().kind, inputFile + ": " + status.error().message};
  }
  CompileOptions options = flags.options({target});
  options.vocabularyParallel = vocabulary.value;
  options.kernels = kernels.files();
  Driver driver(**module, inputFile, options);
  if (verifyFusions)
    driver.recordRewrites();
  PassManager manager(context.get());
  if (failed(applyPassManagerCLOptions(manager)) || failed(config.setupPassPipeline(manager)))
    return badInput("the pass pipeline is not valid");
  {
    llvm::SourceMgr sources;
    SourceMgrDiagnosticHandler printDiagnostics(sources, context.get());
    std::optional<RewriteLog::Scope> logging;
    if (verifyFusions)
      logging.emplace(driver.rewrites());
    if (failed(manager.run(**module)))
      return badInput(inputFile + ": a pass failed");
  }
  // Remarks are diagnostics: those of the phases below go to stderr too.
  std::optional<ScopedDiagnosticHandler> remarks;
  if (config.shouldEmitRemarks())
    remarks.emplace(context.get(), [](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() != DiagnosticSeverity::Remark)
        return failure();
      llvm::errs() << diagnostic << "\n";
      return success();
    });
  if (fuseFlag)
    if (Status status = driver.lower(options.profit); !status)
      return status;
  if (verifyFusions) {
    auto entry = driver.entry();
    if (!entry)
      return entry.error();
    if (!fuseFlag && driver.rewrites().rewrites().empty() && entry->getOps<GroupOp>().empty())
      return badInput(inputFile + ": --verify-fusions finds no group and no rewrite to verify; add --fuse");
    if (Status status = driver.verify(); !status)
      return status;
  }
  auto trials = driver.tryKernels({});
  if (!trials)
    return trials.error();
  for (const KernelTrial &trial : *trials)
    llvm::errs() << trial.text();
  if (emitKind == "cuda" && llvm::StringRef(outputFile).ends_with("/"))
    if (Status status = driver.writeKernels(outputFile); !status)
      return status;
  auto text = driver.print(*emitNamed(emitKind.getValue()));
  if (!text)
    return text.error();
  if (!reportFile.empty() || requirePlan)
    (void)driver.plan(); // the kernels' names; the graph may hold what no schedule takes
  const std::string &noPlan = driver.noPlan();
  if (!noPlan.empty() && !requirePlan && !flags.quiet)
    llvm::errs() << "fusion-opt: no GPU plan for " << options.target.arch << ": " << noPlan << "\n";
  std::optional<Report> report;
  if (!reportFile.empty() || !required.empty())
    report = driver.report();
  if (!reportFile.empty())
    if (Status status = report->write(reportFile); !status)
      return status;
  if (requirePlan && !noPlan.empty())
    return Error{ErrorKind::AnswerIsNo,
                 inputFile + ": no GPU plan for " + options.target.arch + ": " + noPlan};
  if (report)
    if (Status status = checkRequirements(*report); !status)
      return status;
  return llvm::StringRef(outputFile).ends_with("/") ? Status() : writeOutput(outputFile, *text);
}

Status runMlirOpt(DialectRegistry &registry, const MlirOptMainConfig &config) {
  if (inputFile != "-")
    if (auto file = MappedFile::open(inputFile); !file) // such as a pipe, or a device without end
      return file.error();
  std::string message;
  auto file = openInputFile(inputFile, &message);
  if (!file)
    return badInput(message);
  if (Status status = checkNesting(std::string_view(file->getBuffer())); !status)
    return badInput(inputFile + ": " + status.error().message);
  std::string text;
  llvm::raw_string_ostream out(text);
  if (failed(MlirOptMain(out, std::move(file), registry, config)))
    return badInput(""); // said by the diagnostics
  return writeOutput(outputFile, text);
}
} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  noteExtra(required, {.initial = {}, .words = fusionWords});
  return toolMain(
      argc, argv,
      {.name = "fusion-opt",
       .purpose = "fuse a transformer graph and say why",
       .description =
           "Reads a graph, fuses neighbouring operators into kernels with --fuse, and prints the graph, "
           "the kernels' CUDA source or the plan. A report says of every fusion that did not happen "
           "why. No GPU is needed.\n\nThe passes and options of mlir-opt are there too.",
       .categories = {&output, &category},
       .registerOthers =
           [&] {
             registerEverything(registry);
             registerTransformsPasses();
             MlirOptMainConfig::registerCLOptions(registry);
             registerAsmPrinterCLOptions();
             registerMLIRContextCLOptions();
             registerPassManagerCLOptions();
           },
       .others = &mlirCategory},
      [&]() -> Status {
        setQuiet(flags.quiet);
        if (Status status = checkOptions(); !status)
          return status;
        MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
        return needsOwnDriver() ? runOwn(config) : runMlirOpt(registry, config);
      });
}
