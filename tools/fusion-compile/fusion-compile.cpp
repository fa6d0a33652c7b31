// fusion-compile: a graph to a folder with cubins, plan and weights.
#include "CompileFlags.h"
#include "Tool.h"

#include "api/Fusion.h"
#include "ir/base/Progress.h"

#include "llvm/Support/CommandLine.h"

using namespace fusion;
namespace cl = llvm::cl;

namespace {
cl::OptionCategory category("Options");
cl::opt<std::string> inputFile(cl::Positional, cl::desc("INPUT: a graph, .onnx or .mlir"), cl::cat(category));
cl::opt<std::string> bundle("o", cl::desc("Folder to write"), cl::value_desc("DIR"), cl::cat(category));
cl::opt<bool> noFuse("no-fuse", cl::desc("Leave all fusions out"), cl::cat(category));
WordOption target = targetOption(category);
CompileFlags flags(category);

Status run() {
  setQuiet(flags.quiet);
  if (inputFile.empty())
    return badInput("no INPUT; see fusion-compile --help");
  if (bundle.empty())
    return badInput("no folder to write: give -o DIR");
  if (Status status = flags.check(); !status)
    return status;
  auto graph = Graph::load(inputFile, flags.loading());
  if (!graph)
    return graph.error();
  CompileOptions options = flags.options({target});
  options.fuse = !noFuse;
  return writeBundle(*graph, options, bundle);
}
} // namespace

int main(int argc, char **argv) {
  return toolMain(
      argc, argv,
      {.name = "fusion-compile",
       .purpose = "compile a graph for a GPU",
       .description =
           "Fuses a transformer graph, compiles its kernels and writes them with the plan and the weights "
           "into a folder, a bundle. fusion-run, the libraries and other machines run it without "
           "compiling anything. No GPU is needed.",
       .categories = {&category}},
      run);
}
