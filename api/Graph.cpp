#include "api/Graph.h"

#include "api/RankFiles.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion {

namespace {
std::vector<Port> inputPorts(func::FuncOp function) {
  std::vector<Port> ports;
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto name = function.getArgAttrOfType<StringAttr>(index, nn::nameAttr);
    ports.push_back({name ? name.getValue().str() : "arg" + std::to_string(index), dtype(argument),
                     nn::argumentDims(function, index)});
  }
  return ports;
}

std::vector<Port> outputPorts(func::FuncOp function, const nn::SymbolicShapes &shapes) {
  std::vector<Port> ports;
  for (auto [index, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands())) {
    auto name = function.getResultAttrOfType<StringAttr>(index, nn::nameAttr);
    ports.push_back({name ? name.getValue().str() : "result" + std::to_string(index), dtype(value), shapes[value]});
  }
  return ports;
}
} // namespace

Result<Graph> Graph::load(const std::string &path, const LoadOptions &options) {
  auto implementation = std::make_shared<Implementation>();
  implementation->path = path;
  implementation->context = makeContext();
  ImportOptions importOptions;
  importOptions.constants = options.constants;
  importOptions.sharedCaches = options.sharedCaches;
  importOptions.dims = options.dims;
  if (namesRankFiles(path) && options.ranks < 2)
    return badInput(path + ": stands for the files of several ranks; say how many there are");
  auto module = namesRankFiles(path) ? importRankFiles(*implementation->context, path, options.ranks, importOptions)
                                     : loadModule(*implementation->context, path, importOptions);
  if (!module)
    return module.error();
  implementation->module = std::move(*module);
  implementation->weightFolder = weightFolder(*implementation->module, path);
  auto entry = entryFunction(*implementation->module);
  if (!entry)
    return badInput(path + ": " + entry.error().message);
  auto shapes = nn::SymbolicShapes::compute(*entry);
  if (failed(shapes))
    return badInput(path + ": shapes do not fit together");
  implementation->inputs = inputPorts(*entry);
  implementation->outputs = outputPorts(*entry, *shapes);
  Graph graph;
  graph.shared = std::move(implementation);
  return graph;
}

const std::vector<Port> &Graph::inputs() const { return shared->inputs; }
const std::vector<Port> &Graph::outputs() const { return shared->outputs; }

std::string Graph::text() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  shared->module->print(out);
  return text;
}

} // namespace fusion
