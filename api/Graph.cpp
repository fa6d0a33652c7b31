#include "api/Graph.h"

#include "api/RankFiles.h"
#include "api/Sampling.h"
#include "ir/base/PlainText.h"
#include "ir/base/SoleSymbol.h"
#include "ir/dialect/SymbolicShapes.h"
#include "ir/dialect/Types.h"
#include "runtime/cuda/ReadMemory.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

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

/// More inputs that decide between graphs make too many graphs.
static constexpr size_t mostChoices = 3;

static Result<std::shared_ptr<Graph::Implementation>> read(std::shared_ptr<const GraphSource> source,
                                                           size_t choices = 0);

Status Graph::Implementation::isOne() const {
  if (!choice)
    return {};
  return badInput(path + ": input '" + choice->input.name +
                  "' decides which of two graphs runs: say its value before compiling: --constant=" +
                  choice->input.name + (choice->refused[1] ? "=0" : "=1"));
}

/// Each port as it is on both sides, whose names and types are the same. A dim that differs is a symbol: of
/// inputs the one that it has on one side, of results one of its own.
static Result<std::vector<Port>> commonPorts(const std::vector<Port> &left, const std::vector<Port> &right,
                                             bool areInputs) {
  std::vector<Port> common = left;
  auto isSymbol = [](const Dim &dim) { return soleSymbol(dim).has_value(); };
  for (auto [port, other] : llvm::zip_equal(common, right)) {
    if (port.type != other.type || port.shape.size() != other.shape.size())
      return badInput(fmt::format("'{}' is {} {} or {} {}", port.name, name(port.type),
                                  shapeString(port.shape), name(other.type), shapeString(other.shape)));
    for (size_t axis = 0; axis < port.shape.size(); ++axis) {
      Dim &dim = port.shape[axis];
      const Dim &there = other.shape[axis];
      if (dim == there || (areInputs && isSymbol(dim)))
        continue;
      dim = areInputs && isSymbol(there) ? there : Dim::symbol(symbolName(port.name, axis));
    }
  }
  return common;
}

/// The graphs for both values of the input that decides. One of them may be refused.
static Result<std::shared_ptr<Graph::Implementation>>
readBoth(const GraphSource &source, const DecidingInput &deciding, size_t choices) {
  auto graph = std::make_shared<Graph::Implementation>();
  graph->path = source.path;
  graph->source = std::make_shared<GraphSource>(source);
  Graph::Implementation::Choice choice{{deciding.name, DType::Bool, {}}, {}};
  choice.input.shape.assign(deciding.shape.begin(), deciding.shape.end());
  for (uint8_t value : {0, 1}) {
    auto one = std::make_shared<GraphSource>(source);
    one->import.constants[deciding.name] =
        Tensor::of<uint8_t>(DType::Bool, deciding.shape, std::span<const uint8_t>(&value, 1));
    auto made = read(std::move(one), choices + 1);
    if (made)
      choice.graphs[value] = Graph(std::move(*made));
    else
      choice.refused[value] = Error{
          made.error().kind, fmt::format("{} (where {} is {})", made.error().message, deciding.name, value)};
  }
  if (choice.refused[0] && choice.refused[1])
    return *choice.refused[0];
  for (auto [ports, of] : {std::pair(&graph->inputs, &Graph::inputs), {&graph->outputs, &Graph::outputs}}) {
    if (choice.refused[0] || choice.refused[1]) {
      *ports = (choice.graphs[choice.refused[0] ? 1 : 0].*of)();
      continue;
    }
    auto common = commonPorts((choice.graphs[0].*of)(), (choice.graphs[1].*of)(), of == &Graph::inputs);
    if (!common)
      return Error{common.error().kind,
                   fmt::format("{}: {}, as {} decides", source.path, common.error().message, deciding.name)};
    *ports = std::move(*common);
  }
  graph->inputs.insert(graph->inputs.begin() + static_cast<std::ptrdiff_t>(deciding.index), choice.input);
  graph->choice = std::move(choice);
  return graph;
}

static Result<std::shared_ptr<Graph::Implementation>> read(std::shared_ptr<const GraphSource> source,
                                                           size_t choices) {
  auto graph = std::make_shared<Graph::Implementation>();
  const std::string &path = graph->path = source->path;
  graph->source = source;
  graph->context = makeContext();
  const bool isOfRanks = namesRankFiles(path) && !source->import.contents;
  if (isOfRanks && source->ranks < 2)
    return badInput(path + ": stands for the files of several ranks; say how many there are");
  std::optional<DecidingInput> deciding;
  auto module = isOfRanks ? importRankFiles(*graph->context, path, source->ranks, source->import)
                          : loadModule(*graph->context, path, source->import, &deciding);
  if (!module && deciding && choices < mostChoices)
    return readBoth(*source, *deciding, choices);
  if (!module)
    return module.error();
  graph->module = std::move(*module);
  graph->weightFolder = weightFolder(*graph->module, path);
  auto entry = entryFunction(*graph->module);
  if (!entry)
    return badInput(path + ": " + entry.error().message);
  if (source->sampling)
    if (Status status = appendSampling(*entry, *source->sampling); !status)
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

/// `contents`: of the model, if it is in memory.
static Result<std::shared_ptr<Graph::Implementation>>
read(const std::string &path, std::shared_ptr<MappedFile> contents, const LoadOptions &options) {
  auto import = importOptionsOf(options);
  if (!import)
    return import.error();
  import->contents = std::move(contents);
  auto source = std::make_shared<GraphSource>(
      GraphSource{path, std::move(*import), options.ranks, options.sampling, nullptr});
  if (source->canReadAgain() && !source->import.contents)
    if (auto file = MappedFile::open(path))
      source->file = std::move(*file);
  return read(std::move(source));
}

bool GraphSource::canReadAgain() const {
  const bool isText = llvm::StringRef(path).ends_with(".mlir");
  return !isText && (import.contents || !namesRankFiles(path));
}

Result<Graph> GraphSource::whereOne(const std::set<std::string> &symbols) const {
  if (file)
    if (auto now = MappedFile::open(path); !now || *now != file)
      return badInput(path + ": cannot be read again as it was when the graph was loaded");
  auto source = std::make_shared<GraphSource>(*this);
  for (const std::string &symbol : symbols)
    source->import.dims[symbol] = 1;
  auto graph = read(std::move(source));
  return graph ? Result(Graph(std::move(*graph))) : graph.error();
}

Result<Graph> Graph::load(const std::string &path, const LoadOptions &options) {
  auto graph = read(path, nullptr, options);
  return graph ? Result(Graph(std::move(*graph))) : graph.error();
}

Result<Graph> Graph::load(const ModelBytes &model, const LoadOptions &options) {
  auto graph = read(model.path, MappedFile::ofMemory(model.bytes, model.owner), options);
  return graph ? Result(Graph(std::move(*graph))) : graph.error();
}

const std::vector<Port> &Graph::inputs() const { return shared->inputs; }
const std::vector<Port> &Graph::outputs() const { return shared->outputs; }

std::string Graph::text() const {
  std::string text;
  if (const auto &choice = shared->choice) {
    for (size_t value : {0, 1})
      text += fmt::format("// where {} is {}\n{}", choice->input.name, value,
                          choice->refused[value] ? "// " + choice->refused[value]->message + "\n"
                                                 : choice->graphs[value].text());
    return text;
  }
  llvm::raw_string_ostream out(text);
  shared->module->print(out);
  return text;
}

} // namespace fusion
