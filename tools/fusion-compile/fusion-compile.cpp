// fusion-compile: a graph to a folder with cubins, plan and weights.
#include "CompileFlags.h"
#include "Tool.h"

#include "api/Fusion.h"
#include "ir/base/Progress.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"

using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Fusion options");
cl::opt<std::string> inputFile(cl::Positional, cl::desc("INPUT (.onnx or .mlir)"), cl::cat(category));
cl::opt<std::string> bundle("o", cl::desc("Folder to write"), cl::value_desc("BUNDLE"),
                            cl::cat(category));
cl::opt<bool> noFuse("no-fuse", cl::desc("Leave all fusions out"), cl::cat(category));
TargetFlag target(category);
CompileFlags flags(category);

Status run() {
  if (inputFile.empty())
    return badInput("no INPUT; see fusion-compile --help");
  if (bundle.empty())
    return badInput("no folder to write: give -o BUNDLE");
  for (const Status &status : {flags.check(), target.check()})
    if (!status)
      return status;
  auto graph = Graph::load(inputFile, flags.loading());
  if (!graph)
    return graph.error();
  CompileOptions options = flags.options({target.value});
  options.fuse = !noFuse;
  return writeBundle(*graph, options, bundle);
}
} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  prepareOptions("fusion-compile", category);
  if (!parseOptions(argc, argv, "fusion-compile", "compile a graph for a GPU"))
    return static_cast<int>(ErrorKind::BadInput);
  setQuiet(flags.quiet);
  return runTool("fusion-compile", run);
}
