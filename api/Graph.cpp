#include "api/Graph.h"

#include "api/RankFiles.h"
#include "api/Sampling.h"
#include "ir/base/PlainText.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"
#include "runtime/cuda/ReadMemory.h"

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
    ports.push_back(
        {name ? name.getValue().str() : "result" + std::to_string(index), dtype(value), shapes[value]});
  }
  return ports;
}
} // namespace

/// Names are handed on as UTF-8: to Python, into JSON.
static Status checkNames(const std::vector<Port> &ports) {
  for (const Port &port : ports) {
    std::string names = port.name;
    for (const Dim &dim : port.shape)
      names += dim.str();
    if (!isUtf8(names))
      return badInput("the name of '" + plainText(port.name) + "' or of one of its dims is not UTF-8");
  }
  return {};
}

/// The tensor's bytes as a file; a copy of one with gaps.
static Result<std::shared_ptr<MappedFile>> fileOf(const std::string &name, const Tensor &tensor) {
  if (tensor.device().kind == Device::Kind::Cuda) {
    if (!tensor.isDense())
      return badInput(name + ": a weight on a GPU is taken without gaps");
    const MappedFile::OnGpu place{static_cast<const std::byte *>(tensor.data()), tensor.bytes(),
                                  tensor.device().ordinal};
    return MappedFile::ofGpu(place, tensor.storage(), [](void *target, const MappedFile::OnGpu &source) {
      return cuda::readMemory(source.ordinal, target, source.address, source.size);
    });
  }
  const Tensor dense = tensor.dense();
  return MappedFile::ofMemory({static_cast<const std::byte *>(dense.data()), dense.bytes()}, dense.storage());
}

static Result<ImportOptions> importOptionsOf(const LoadOptions &options) {
  ImportOptions import;
  import.constants = options.constants;
  import.constantTexts = options.constantTexts;
  import.sharedCaches = options.sharedCaches;
  import.dims = options.dims;
  import.trustPaths = options.trustPaths;
  for (const auto &[location, tensor] : options.files) {
    auto file = tensor.type() == DType::U8 ? fileOf("file '" + location + "'", tensor)
                                           : badInput("file '" + location + "': bytes are given as u8");
    if (!file)
      return file.error();
    import.files.emplace(location, std::move(*file));
  }
  for (const auto &[name, tensor] : options.weights) {
    if (tensor.type() == DType::I4 || tensor.type() == DType::U4)
      return badInput("weight '" + name + "': 4-bit elements are given two to a byte, as u8");
    auto file = fileOf("weight '" + name + "'", tensor);
    if (!file)
      return file.error();
    import.weights.emplace(name, onnx::MemoryWeight{tensor.type(), tensor.shape(), std::move(*file)});
  }
  return import;
}

/// `contents`: of the model, if it is in memory.
static Result<std::shared_ptr<Graph::Implementation>>
read(const std::string &path, std::shared_ptr<MappedFile> contents, const LoadOptions &options) {
  auto graph = std::make_shared<Graph::Implementation>();
  graph->path = path;
  graph->context = makeContext();
  auto importOptions = importOptionsOf(options);
  if (!importOptions)
    return importOptions.error();
  importOptions->contents = std::move(contents);
  const bool isOfRanks = namesRankFiles(path) && !importOptions->contents;
  if (isOfRanks && options.ranks < 2)
    return badInput(path + ": stands for the files of several ranks; say how many there are");
  auto module = isOfRanks ? importRankFiles(*graph->context, path, options.ranks, *importOptions)
                          : loadModule(*graph->context, path, *importOptions);
  if (!module)
    return module.error();
  graph->module = std::move(*module);
  graph->memory.push_back(importOptions->contents);
  for (const auto &[location, file] : importOptions->files)
    graph->memory.push_back(file);
  for (const auto &[name, weight] : importOptions->weights)
    graph->memory.push_back(weight.bytes);
  graph->weightFolder = weightFolder(*graph->module, path);
  auto entry = entryFunction(*graph->module);
  if (!entry)
    return badInput(path + ": " + entry.error().message);
  if (options.sampling)
    if (Status status = appendSampling(*entry, *options.sampling); !status)
      return Error{status.error().kind, path + ": " + status.error().message};
  auto shapes = nn::SymbolicShapes::compute(*entry);
  if (failed(shapes))
    return badInput(path + ": shapes do not fit together");
  graph->inputs = inputPorts(*entry);
  graph->outputs = outputPorts(*entry, *shapes);
  for (const std::vector<Port> *ports : {&graph->inputs, &graph->outputs})
    if (Status status = checkNames(*ports); !status)
      return badInput(path + ": " + status.error().message);
  return graph;
}

Result<Graph> Graph::load(const std::string &path, const LoadOptions &options) {
  auto read = fusion::read(path, nullptr, options);
  if (!read)
    return read.error();
  Graph graph;
  graph.shared = std::move(*read);
  return graph;
}

Result<Graph> Graph::load(const ModelBytes &model, const LoadOptions &options) {
  auto read = fusion::read(model.path, MappedFile::ofMemory(model.bytes, model.owner), options);
  if (!read)
    return read.error();
  Graph graph;
  graph.shared = std::move(*read);
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
