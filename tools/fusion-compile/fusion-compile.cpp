// fusion-compile: a graph to a folder with cubins, plan and weights.
#include "Output.h"

#include "ir/base/Progress.h"
#include "runtime/api/Fusion.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("fusion-compile");
cl::opt<std::string> inputFile(cl::Positional, cl::Required, cl::desc("INPUT (.onnx or .mlir)"), cl::cat(category));
cl::opt<std::string> bundle("o", cl::Required, cl::desc("Folder to write"), cl::value_desc("BUNDLE"),
                            cl::cat(category));
cl::opt<std::string> target("target", cl::desc("GPU architecture; no GPU needed"), cl::value_desc("sm_XX"),
                            cl::init("sm_90a"), cl::cat(category));
cl::opt<bool> noFuse("no-fuse", cl::desc("Leave all fusions out"), cl::cat(category));
cl::list<std::string> fuseDisable("fuse-disable", cl::CommaSeparated, cl::desc("Leave fusions out, by pattern name"),
                                  cl::value_desc("NAME,..."), cl::cat(category));
cl::list<std::string> patternFiles("patterns", cl::desc("More patterns (.pdll or PDL .mlir); repeatable"),
                                   cl::value_desc("FILE"), cl::cat(category));
cl::opt<bool> quiet("quiet", cl::desc("No progress on stderr"), cl::cat(category));

Status run() {
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
  return writeBundle(*graph, options, bundle);
}
} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  if (!cl::ParseCommandLineOptions(argc, argv, "fusion-compile: compile a graph for a GPU\n", &llvm::errs()))
    return static_cast<int>(ErrorKind::BadInput);
  setQuiet(quiet);
  Status status = run();
  if (status)
    return 0;
  llvm::errs() << "fusion-compile: " << status.error().message << "\n";
  return static_cast<int>(status.error().kind);
}
