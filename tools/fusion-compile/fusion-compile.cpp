// fusion-compile: a graph to a folder with cubins, plan and weights.
#include "Output.h"
#include "Tool.h"

#include "ir/base/Progress.h"
#include "runtime/api/Fusion.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"

using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Fusion options");
cl::opt<std::string> inputFile(cl::Positional, cl::desc("INPUT (.onnx or .mlir)"), cl::cat(category));
cl::opt<std::string> bundle("o", cl::desc("Folder to write"), cl::value_desc("BUNDLE"),
                            cl::cat(category));
cl::opt<std::string> target("target", cl::desc("GPU architecture; no GPU needed"), cl::value_desc("sm_XX"),
                            cl::init("sm_90a"), cl::cat(category));
cl::opt<bool> noFuse("no-fuse", cl::desc("Leave all fusions out"), cl::cat(category));
cl::list<std::string> fuseDisable("fuse-disable", cl::CommaSeparated, cl::desc("Leave fusions out, by pattern name"),
                                  cl::value_desc("NAME,..."), cl::cat(category));
cl::opt<ProfitMode> profit("profit", cl::desc("What decides between fusions:"),
                           cl::values(clEnumValN(ProfitMode::Auto, "auto", "measured time on a GPU of the target, if there is one"),
                                      clEnumValN(ProfitMode::Model, "model", "memory traffic and launches saved"),
                                      clEnumValN(ProfitMode::Measure, "measure", "measured time, or an error")),
                           cl::init(ProfitMode::Auto), cl::cat(category));
cl::list<std::string> patternFiles("patterns", cl::desc("More patterns (.pdll or PDL .mlir); repeatable"),
                                   cl::value_desc("FILE"), cl::cat(category));
cl::opt<int64_t> kvCapacity("kv-capacity", cl::desc("Positions that key/value caches hold: they are extended in place"),
                            cl::value_desc("N"), cl::cat(category));
cl::opt<int> tensorParallel("tp", cl::desc("Divide the graph among N ranks"), cl::value_desc("N"), cl::init(1),
                            cl::cat(category));
cl::opt<bool> quiet("quiet", cl::desc("No progress on stderr"), cl::cat(category));

Status run() {
  if (inputFile.empty())
    return badInput("no INPUT; see fusion-compile --help");
  if (bundle.empty())
    return badInput("no folder to write: give -o BUNDLE");
  if (kvCapacity.getNumOccurrences() && kvCapacity < 1)
    return badInput("--kv-capacity takes a number of positions, not " + std::to_string(kvCapacity));
  if (tensorParallel < 1)
    return badInput("--tp takes a number of ranks, not " + std::to_string(tensorParallel));
  if (Status status = checkTarget(target); !status)
    return status;
  auto graph = Graph::load(inputFile);
  if (!graph)
    return graph.error();
  CompileOptions options;
  options.target.arch = target;
  options.fuse = !noFuse;
  options.disabledFusions = fuseDisable;
  options.patternFiles = patternFiles;
  options.profit = profit;
  options.kvCapacity = kvCapacity;
  options.tensorParallel = tensorParallel;
  return writeBundle(*graph, options, bundle);
}
} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  prepareOptions("fusion-compile", category);
  if (!parseOptions(argc, argv, "fusion-compile", "compile a graph for a GPU"))
    return static_cast<int>(ErrorKind::BadInput);
  setQuiet(quiet);
  return runTool("fusion-compile", run);
}
