#include "api/Lower.h"

#include "ir/base/Confine.h"
#include "ir/base/Nearest.h"
#include "ir/base/TextNesting.h"
#include "ir/dialect/Dialect.h"
#include "ir/dialect/Loop.h"
#include "ir/dialect/Mesh.h"
#include "ir/dialect/PossibleShape.h"
#include "passes/MissLog.h"
#include "passes/Passes.h"
#include "passes/Pipeline.h"
#include "passes/fuse/FusePass.h"
#include "passes/fuse/Propose.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;

namespace fusion {

namespace {
/// Keeps the first error diagnostic as one line.
class FirstError {
public:
  explicit FirstError(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() == DiagnosticSeverity::Remark)
            return failure(); // for whoever asked for remarks
          if (diagnostic.getSeverity() == DiagnosticSeverity::Error && message.empty()) {
            llvm::raw_string_ostream out(message);
            if (auto line = llvm::dyn_cast<FileLineColLoc>(diagnostic.getLocation()))
              out << line.getFilename().getValue() << ":" << line.getLine() << ":" << line.getColumn()
                  << ": ";
            out << diagnostic;
          }
          return success();
        }) {}
  std::string text(const std::string &otherwise) const { return message.empty() ? otherwise : message; }

private:
  std::string message;
  ScopedDiagnosticHandler handler;
};
} // namespace

void registerEverything(DialectRegistry &registry) {
  registerDialects(registry);
  registerFusionPasses();
  registerPipelines();
  registerFamilyPasses([] { return makeScheduleOracle(TargetInfo::standard()); });
}

std::unique_ptr<MLIRContext> makeContext() {
  DialectRegistry registry;
  registerDialects(registry);
  auto context = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  context->loadAllAvailableDialects();
  return context;
}

std::string weightFolder(ModuleOp module, const std::string &path) {
  std::string beside = llvm::sys::path::parent_path(path).str();
  auto model = module->getAttrOfType<StringAttr>("nn.model");
  if (!model)
    return beside;
  auto has = [](StringRef folder, StringRef file) {
    llvm::SmallString<256> place(folder);
    llvm::sys::path::append(place, file);
    return llvm::sys::fs::exists(place);
  };
  StringRef origin = llvm::sys::path::parent_path(model.getValue());
  bool elsewhere = module
                       .walk([&](nn::WeightOp weight) {
                         StringRef file = weight.getPath();
                         bool moved =
                             llvm::sys::path::is_relative(file) && !has(beside, file) && has(origin, file);
                         return moved ? WalkResult::interrupt() : WalkResult::advance();
                       })
                       .wasInterrupted();
  return elsewhere ? origin.str() : beside;
}

/// The parser reads the zero byte behind a text, which a mapped file and the bytes of a caller may lack.
static Result<OwningOpRef<ModuleOp>> parseText(MLIRContext &context, const std::string &path,
                                               const MappedFile &contents) {
  const std::string text(reinterpret_cast<const char *>(contents.bytes().data()), contents.bytes().size());
  if (Status status = checkNesting(text); !status)
    return badInput(path + ": " + status.error().message);
  FirstError error(&context);
  auto module = parseSourceString<ModuleOp>(text, ParserConfig(&context), path);
  if (!module)
    return badInput(error.text(path + ": is not a graph in MLIR text"));
  return module;
}

/// Of a graph in text: weights lie beside it, as external data does.
static Status checkWeightPaths(ModuleOp module, const std::string &path) {
  const std::string beside = llvm::sys::path::parent_path(path).str();
  if (weightFolder(module, path) != beside)
    return badInput(
        path + ": its weights lie in the folder of the model that it was made of; --trust-paths takes them "
               "from there");
  Status status;
  module.walk([&](nn::WeightOp weight) {
    std::vector<std::string> paths = {weight.getPath().str()};
    if (auto parts = weight.getPartPaths())
      for (StringRef part : parts->getAsValueRange<StringAttr>())
        paths.push_back(part.str());
    for (const std::string &file : paths) {
      status = confined(beside, file);
      llvm::SmallString<256> place(beside);
      llvm::sys::path::append(place, file);
      if (status && !llvm::sys::fs::exists(place) && llvm::sys::fs::exists(file))
        status = badInput("'" + file + "' lies in the working folder; --trust-paths takes it from there");
      if (!status)
        return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return status ? status : Status(badInput(path + ": weight file " + status.error().message));
}

Result<OwningOpRef<ModuleOp>> loadModule(MLIRContext &context, const std::string &path,
                                         const ImportOptions &options,
                                         std::optional<DecidingInput> *deciding) {
  const bool isText = llvm::StringRef(path).ends_with(".mlir");
  if (!options.contents && !llvm::sys::fs::exists(path))
    return badInput(path + ": no such file");
  if (!options.contents && llvm::sys::fs::is_directory(path))
    return badInput(path + ": is a folder, not a graph file");
  if (llvm::StringRef(path).ends_with(".onnx") || (options.contents && !isText))
    return importOnnx(context, path, options, deciding);
  if (!options.dims.empty())
    return badInput(path + ": sizes of dims can be given for ONNX files only");
  if (!options.constants.empty() || !options.constantTexts.empty())
    return badInput(path + ": inputs can be made constants of ONNX files only");
  if (!options.weights.empty() || !options.files.empty())
    return badInput(path + ": weights in memory are for ONNX models, not for graphs as text");
  auto file =
      options.contents ? Result<std::shared_ptr<MappedFile>>(options.contents) : MappedFile::open(path);
  if (!file)
    return file.error();
  auto module = parseText(context, path, **file);
  if (!module)
    return module;
  if (Status status = options.trustPaths ? Status() : checkWeightPaths(**module, path); !status)
    return status.error();
  return module;
}

Result<func::FuncOp> entryFunction(ModuleOp module) {
  auto functions = llvm::to_vector(module.getOps<func::FuncOp>());
  if (functions.empty())
    return badInput("the module has no function");
  func::FuncOp entry = functions.front();
  if (functions.size() > 1) {
    entry = module.lookupSymbol<func::FuncOp>("main");
    if (!entry)
      return badInput("the module has several functions and none is @main");
  }
  if (entry.isExternal() || !llvm::hasSingleElement(entry.getBody()))
    return badInput("the entry function @" + entry.getSymName().str() + " must be one block");
  for (Operation &op : entry.getBody().front().without_terminator())
    if (!llvm::isa<GroupOp>(op) && !nn::isGraphOp(&op))
      return badInput("op " + op.getName().getStringRef().str() + " is not part of a graph");
  for (BlockArgument argument : entry.getArguments()) {
    const std::string which = "an argument of @" + entry.getSymName().str();
    auto type = llvm::dyn_cast<RankedTensorType>(argument.getType());
    if (!type)
      return badInput(which + " is not a ranked tensor");
    if (!dtypeOf(type.getElementType()))
      return badInput(which + " has elements of a type that is not supported");
    if (!nn::isPossibleShape(type))
      return badInput(which + " has an impossible shape");
  }
  return entry;
}

Result<PatternSet> loadPatterns(MLIRContext &context, const std::vector<std::string> &files) {
  auto set = PatternSet::builtin(&context);
  if (!set)
    return set;
  for (const std::string &file : files)
    if (Status status = set->addFile(file, &context); !status)
      return status.error();
  return set;
}

std::vector<std::string> builtinFusions() {
  auto context = makeContext();
  auto patterns = loadPatterns(*context, {});
  std::vector<std::string> names = patterns ? fusionNames(*patterns) : std::vector<std::string>();
  llvm::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// A graph that holds collectives is one rank's already, and runs on each as it is. False if it holds none,
/// or if it is known to be cut and its ports are still to be placed.
static bool markAsOneRanks(ModuleOp module, int64_t ranks) {
  bool holds = false;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.getOps<nn::AllReduceOp>().empty() && !function->hasAttr(nn::meshAttr)) {
      nn::setMesh(function, {nn::tensorAxis.str(), ranks});
      holds = true;
    }
  return holds;
}

/// What fused in a loop's body, counted once. What a body has no ops for is no miss of the graph's.
static void addLoop(FusionReport &report, FusionReport inside) {
  auto append = [](auto &to, auto &from) { llvm::append_range(to, from); };
  for (auto &[name, pattern] : inside.patterns) {
    llvm::erase_if(pattern.missed, [](const FusionReport::Miss &miss) { return miss.location.empty(); });
    append(report.patterns[name].fired, pattern.fired);
    append(report.patterns[name].missed, pattern.missed);
  }
  report.kernelsBefore += inside.kernelsBefore;
  report.kernelsAfter += inside.kernelsAfter;
  report.bytesBefore += inside.bytesBefore;
  report.bytesAfter += inside.bytesAfter;
}

Status lower(ModuleOp module, const LowerOptions &options, FusionReport &report) {
  MLIRContext *context = module.getContext();
  auto target = targetOf(options.plan);
  if (!target)
    return target.error();
  auto oracle = makeScheduleOracle(*target, options.plan.schedules, options.plan.batchInvariant);
  {
    FirstError error(context);
    PassManager manager(context);
    manager.enableVerifier(false);
    buildNormalisePipeline(manager);
    const bool fusesLatent = options.fuse && options.fusions.tries("latent_attention");
    buildRaisePipeline(manager, options.assumeFinite,
                       fusesLatent ? keepsLatentAttention(*oracle) : KeepsAttention());
    if (options.ranks > 1) {
      if (markAsOneRanks(module, options.ranks))
        report.patterns["shard"].missed.push_back({"", std::string(oneRanksRemark)});
      else
        buildShardPipeline(manager, options.ranks, options.vocabulary);
    }
    if (options.kvCapacity > 0)
      manager.addPass(createCacheInPlace({options.kvCapacity}));
    MissLog raises;
    MissLog::Scope scope(raises);
    std::optional<RewriteLog::Scope> logging;
    if (options.rewrites)
      logging.emplace(*options.rewrites);
    if (failed(manager.run(module)))
      return badInput(error.text("the graph cannot be normalised"));
    // Dividing raises nothing: in the report it stands with the fusions, each sum over ranks a site. So does
    // attention that became matmuls for want of a kernel.
    auto entryOf = [&](const std::string &name) -> FusionReport::Pattern & {
      return name == "shard" || name == "latent_attention" ? report.patterns[name] : report.raises[name];
    };
    for (const Raised &raised : raises.raised())
      entryOf(raised.op).fired.push_back({raised.location, {raised.root}, 0, raised.assumes});
    for (const Miss &miss : raises.misses()) {
      FusionReport::Pattern &pattern = entryOf(miss.pattern);
      pattern.missed.push_back({miss.location, miss.reason});
      pattern.applies = true;
    }
    if (auto caches = report.raises.find("cache_in_place");
        options.kvCapacity > 0 && (caches == report.raises.end() || caches->second.fired.empty()))
      return badInput(
          "a capacity for key/value caches, but no input is extended by Concat(past, new) or "
          "GroupQueryAttention into a result, and none is a linear attention's state, or pages that "
          "ScatterND or PagedAttention writes" +
          (caches == report.raises.end() ? "" : ": " + caches->second.missed.front().reason));
  }
  auto entry = entryFunction(module);
  if (!entry)
    return entry.error();
  if (auto model = module->getAttrOfType<StringAttr>("nn.model"))
    report.model = model.getValue().str();
  report.target = options.plan.target;
  for (std::string_view feature : target->unusedFeatures())
    report.unusedFeatures.emplace_back(feature);
  FirstError error(context);
  Status status;
  if (options.fuse) {
    auto patterns = loadPatterns(*context, options.patternFiles);
    if (!patterns)
      return patterns.error();
    for (const std::string &name : options.fusions.disabled)
      if (auto known = fusionNames(*patterns); !llvm::is_contained(known, name))
        return badInput("there is no fusion '" + name + "' to disable" +
                        (didYouMean(name, known).empty() ? "; known: " + llvm::join(known, ", ")
                                                         : didYouMean(name, known)));
    status = fuse(*entry, *patterns, options.fusions, *oracle, report);
    for (auto body : module.getOps<func::FuncOp>())
      if (status && nn::isLoopBody(body)) {
        FusionReport inside;
        status = fuse(body, *patterns, options.fusions, *oracle, inside);
        addLoop(report, std::move(inside));
      }
  } else {
    status = describeUnfused(*entry, *oracle, report);
  }
  if (!status)
    return Error{status.error().kind, error.text(status.error().message)};
  if (failed(verify(module)))
    return badInput(error.text("the fused graph does not verify"));
  return {};
}

} // namespace fusion
