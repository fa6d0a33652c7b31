// fusion-opt: import, rewrite, explain and print a graph.
#include "Output.h"
#include "Tool.h"

#include "codegen/BuildPlan.h"
#include "codegen/plan/Print.h"
#include "ir/base/Progress.h"
#include "runtime/api/Lower.h"
#include "runtime/api/Profit.h"
#include "runtime/api/Verify.h"

#include "mlir/IR/AsmState.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Remark/RemarkStreamer.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;
using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Fusion options"), mlirCategory("MLIR options, as in mlir-opt");
cl::opt<std::string> inputFile(cl::Positional, cl::desc("INPUT (.onnx or .mlir)"), cl::init("-"), cl::cat(category));
cl::opt<std::string> outputFile("o", cl::desc("Output file"), cl::value_desc("OUT"), cl::init("-"), cl::cat(category));
cl::opt<bool> fuseFlag("fuse", cl::desc("Run the default pipeline: normalise, raise, fuse"), cl::cat(category));
cl::list<std::string> fuseDisable("fuse-disable", cl::CommaSeparated, cl::desc("Leave fusions out, by pattern name"),
                                  cl::value_desc("NAME,..."), cl::cat(category));
cl::opt<ProfitMode> profit("profit", cl::desc("What decides between fusions:"),
                           cl::values(clEnumValN(ProfitMode::Auto, "auto", "measured time on a GPU of the target, if there is one"),
                                      clEnumValN(ProfitMode::Model, "model", "memory traffic and launches saved"),
                                      clEnumValN(ProfitMode::Measure, "measure", "measured time, or an error")),
                           cl::init(ProfitMode::Auto), cl::cat(category));
cl::list<std::string> patternFiles("patterns", cl::desc("More patterns (.pdll or PDL .mlir); repeatable"),
                                   cl::value_desc("FILE"), cl::cat(category));
cl::list<std::string> required("require", cl::desc("Exit 1 unless pattern NAME fired exactly N times; repeatable"),
                               cl::value_desc("NAME=N"), cl::cat(category));
cl::opt<bool> verifyFusions("verify-fusions",
                            cl::desc("Check every rewrite against the ops it replaced and every group's kernel\n"
                                     "against its body, on random inputs"),
                            cl::cat(category));
cl::opt<std::string> reportFile("report", cl::desc("Write a report: .json, .md or .html"), cl::value_desc("FILE"),
                                cl::cat(category));
cl::opt<std::string> emitKind("emit", cl::desc("mlir, cuda, plan or dot"), cl::init("mlir"), cl::cat(category));
cl::opt<std::string> target("target", cl::desc("GPU architecture; no GPU needed"), cl::value_desc("sm_XX"),
                            cl::init("sm_90a"), cl::cat(category));
cl::opt<int> tensorParallel("tp", cl::desc("Ranks of tensor parallelism: the graph of one of them"), cl::init(1),
                            cl::cat(category));
cl::opt<bool> vocabularyParallel("tp-vocabulary", cl::desc("With --tp: divide the embedding and the head too"),
                                 cl::cat(category));
cl::opt<int64_t> kvCapacity("kv-capacity", cl::desc("Positions that key/value caches hold: they are extended in place"),
                            cl::value_desc("N"), cl::cat(category));
cl::opt<bool> quiet("quiet", cl::desc("No progress on stderr"), cl::cat(category));

/// Names the file unless the message does.
Error inFile(Error error) {
  if (!llvm::StringRef(error.message).contains(inputFile))
    error.message = inputFile + ": " + error.message;
  return error;
}

/// Options whose work MlirOptMain does not know.
bool needsOwnDriver() {
  return llvm::StringRef(inputFile).ends_with(".onnx") || fuseFlag || !reportFile.empty() || emitKind != "mlir" ||
         verifyFusions || !required.empty() || !patternFiles.empty() || !fuseDisable.empty() || tensorParallel != 1 ||
         vocabularyParallel || kvCapacity.getNumOccurrences();
}

Status checkOptions() {
  if (!llvm::is_contained({"mlir", "cuda", "plan", "dot"}, llvm::StringRef(emitKind)))
    return badInput("--emit takes mlir, cuda, plan or dot, not '" + emitKind + "'");
  if (kvCapacity.getNumOccurrences() && (kvCapacity < 1 || !fuseFlag))
    return badInput(fuseFlag ? "--kv-capacity takes a number of positions, not " + std::to_string(kvCapacity)
                             : "--kv-capacity needs --fuse");
  if (!fuseFlag && (!reportFile.empty() || !required.empty() || !patternFiles.empty() || !fuseDisable.empty() ||
                    tensorParallel != 1))
    return badInput("--report, --require, --patterns, --fuse-disable and --tp need --fuse");
  if (vocabularyParallel && tensorParallel == 1)
    return badInput("--tp-vocabulary needs --tp");
  if (tensorParallel < 1)
    return badInput("--tp takes a number of ranks, not " + std::to_string(tensorParallel));
  if (!reportFile.empty() && !isReportFile(reportFile))
    return badInput("--report writes .json, .md or .html, not '" + reportFile + "'");
  for (const std::string &entry : required)
    if (!parseRequirement(entry))
      return badInput("--require takes NAME=N, not '" + entry + "'");
  return checkTarget(target);
}

Status checkRequirements(const Ledger &ledger) {
  for (const std::string &entry : required) {
    auto [name, wanted] = *parseRequirement(entry);
    auto found = ledger.patterns.find(name);
    if (found == ledger.patterns.end())
      found = ledger.raises.find(name);
    if (found == ledger.patterns.end() || found == ledger.raises.end())
      return badInput("--require names an unknown fusion '" + name + "'");
    size_t fired = found->second.fired.size();
    if (fired != wanted) {
      std::string message = "required " + name + " to fire " + std::to_string(wanted) + " times, it fired " +
                            std::to_string(fired);
      for (const Ledger::Miss &miss : found->second.missed)
        message += "\n  missed at " + miss.location + ": " + miss.reason;
      return Error{ErrorKind::AnswerIsNo, message};
    }
  }
  return {};
}

Result<std::string> emitText(ModuleOp module) {
  if (emitKind == "mlir") {
    std::string text;
    llvm::raw_string_ostream out(text);
    module.print(out, OpPrintingFlags());
    out << "\n";
    return text;
  }
  auto entry = entryFunction(module);
  if (!entry)
    return inFile(entry.error());
  auto plan = buildPlan(*entry, {target, weightFolder(module, inputFile)});
  if (!plan)
    return inFile(plan.error());
  return emitKind == "cuda" ? cudaSource(*plan) : emitKind == "plan" ? planText(*plan) : planDot(*plan);
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
  remark::RemarkCategories categories{wanted(""), wanted(config.getRemarksPassedFilter()),
                                      wanted(config.getRemarksMissedFilter()),
                                      wanted(config.getRemarksAnalyseFilter()),
                                      wanted(config.getRemarksFailedFilter())};
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
             context, file, yaml ? llvm::remarks::Format::YAML : llvm::remarks::Format::Bitstream, std::move(policy),
             categories))
             ? Status()
             : badInput("cannot write remarks to " + file);
}

Status runOwn(const MlirOptMainConfig &config) {
  auto context = makeContext();
  if (Status status = enableRemarks(*context, config); !status)
    return status;
  auto module = loadModule(*context, inputFile);
  if (!module)
    return module.error();
  RewriteLog rewrites;
  PassManager manager(context.get());
  if (failed(applyPassManagerCLOptions(manager)) || failed(config.setupPassPipeline(manager)))
    return badInput("the pass pipeline is not valid");
  {
    llvm::SourceMgr sources;
    SourceMgrDiagnosticHandler printDiagnostics(sources, context.get());
    std::optional<RewriteLog::Scope> logging;
    if (verifyFusions)
      logging.emplace(rewrites);
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
  Ledger ledger;
  ledger.model = inputFile;
  if (fuseFlag) {
    LowerOptions options;
    options.fusions.disabled = fuseDisable;
    options.patternFiles = patternFiles;
    auto oracle = makeProfitOracle(profit, target);
    if (!oracle)
      return oracle.error();
    options.fusions.profit = oracle->get();
    options.target = target;
    options.kvCapacity = kvCapacity;
    options.rewrites = verifyFusions ? &rewrites : nullptr;
    options.ranks = tensorParallel;
    options.vocabulary = vocabularyParallel;
    if (Status status = lower(**module, options, ledger); !status)
      return inFile(status.error());
  }
  if (verifyFusions) {
    if (Status status = verifyRewrites(rewrites); !status)
      return status;
    auto entry = entryFunction(**module);
    if (!entry)
      return inFile(entry.error());
    if (!fuseFlag && rewrites.rewrites().empty() && entry->getOps<GroupOp>().empty())
      return inFile(badInput("--verify-fusions finds no group and no rewrite to verify; add --fuse"));
    if (Status status = verifyGroups(*entry, target); !status)
      return status;
  }
  auto text = emitText(**module);
  if (!text)
    return text.error();
  if (!reportFile.empty())
    if (Status status = writeReport(reportFile, ledger); !status)
      return status;
  if (Status status = checkRequirements(ledger); !status)
    return status;
  return writeOutput(outputFile, *text);
}

Status runMlirOpt(DialectRegistry &registry, const MlirOptMainConfig &config) {
  std::string message;
  auto file = openInputFile(inputFile, &message);
  if (!file)
    return badInput(message);
  std::string text;
  llvm::raw_string_ostream out(text);
  if (failed(MlirOptMain(out, std::move(file), registry, config)))
    return badInput(""); // said by the diagnostics
  return writeOutput(outputFile, text);
}
} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  prepareOptions("fusion-opt", category);
  DialectRegistry registry;
  registerEverything(registry);
  registerTransformsPasses();
  MlirOptMainConfig::registerCLOptions(registry);
  registerAsmPrinterCLOptions();
  registerMLIRContextCLOptions();
  registerPassManagerCLOptions();
  categorizeNewOptions(category, mlirCategory);
  if (!parseOptions(argc, argv, "fusion-opt", "fuse a transformer graph and say why"))
    return static_cast<int>(ErrorKind::BadInput);
  setQuiet(quiet);
  return runTool("fusion-opt", [&]() -> Status {
    if (Status status = checkOptions(); !status)
      return status;
    MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
    return needsOwnDriver() ? runOwn(config) : runMlirOpt(registry, config);
  });
}
