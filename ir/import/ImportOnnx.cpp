#include "ir/base/SoleSymbol.h"
#include "ir/import/Graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace fusion {

/// The sizes that the caller knows, as replacements.
static Result<onnx::DimReplacements> givenDims(const onnx::proto::GraphProto &graph,
                                               const SymbolValues &dims) {
  onnx::DimReplacements given;
  if (dims.empty())
    return given;
  auto inputs = onnx::InputShapes::of(graph, {});
  if (!inputs)
    return inputs.error();
  for (const auto &[symbol, size] : dims) {
    if (!inputs->allSymbols().contains(symbol))
      return badInput(fmt::format("no input has a dim '{}'; named dims: {}", symbol,
                                  fmt::join(inputs->allSymbols(), ", ")));
    if (size < 0)
      return badInput(fmt::format("dim '{}' cannot be {}", symbol, size));
    given.emplace(symbol, Dim(size));
  }
  return given;
}

/// Names in a file can hold anything; a message is one line. Its reason stands at its end.
static std::string onOneLine(std::string message) {
  constexpr size_t longestMessage = 2000, longestEnd = 400;
  if (message.size() > longestMessage)
    message =
        message.substr(0, longestMessage - longestEnd) + "..." + message.substr(message.size() - longestEnd);
  for (char &c : message)
    if (static_cast<unsigned char>(c) < ' ')
      c = '?';
  return message;
}

/// An input that nothing reads may be of any size, where others tell what the file names its dims by: in the
/// first step of a merged decoder runtimes give caches of one row or none for the encoder's.
static void freeUnusedInputs(ModuleOp module) {
  auto function = *module.getOps<func::FuncOp>().begin();
  Block &block = function.getBody().front();
  llvm::DenseSet<Value> read; // by what a result follows from
  for (Operation &op : llvm::reverse(block))
    if (op.hasTrait<OpTrait::IsTerminator>() ||
        llvm::any_of(op.getResults(), [&](Value result) { return read.contains(result); }))
      read.insert_range(op.getOperands());
  auto dimsOf = [&](BlockArgument argument) {
    auto dims = function.getArgAttrOfType<ArrayAttr>(argument.getArgNumber(), nn::dimsAttr);
    return dims ? nn::dimsFromAttr(dims) : DimShape();
  };
  std::set<std::string> told;
  for (BlockArgument argument : block.getArguments())
    for (const Dim &dim : dimsOf(argument))
      if (auto symbol = soleSymbol(dim); symbol && read.contains(argument))
        told.insert(*symbol);
  for (BlockArgument argument : block.getArguments()) {
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::nameAttr);
    if (read.contains(argument) || !name)
      continue;
    DimShape dims = dimsOf(argument);
    for (auto [i, dim] : llvm::enumerate(dims))
      if (!dim.isStatic() &&
          llvm::all_of(dim.symbols(), [&](const std::string &symbol) { return told.contains(symbol); }))
        dim = Dim::symbol(symbolName(name.getValue().str(), i));
    function.setArgAttr(argument.getArgNumber(), nn::dimsAttr, nn::dimsToAttr(module.getContext(), dims));
  }
}

Result<OwningOpRef<ModuleOp>> importOnnx(MLIRContext &context, const std::string &path,
                                         const ImportOptions &options,
                                         std::optional<DecidingInput> *deciding) {
  context.loadDialect<nn::NNDialect, func::FuncDialect>();
  auto model = onnx::openModel(path, options.contents);
  if (!model)
    return model.error();
  auto given = givenDims(model->model.graph(), options.dims);
  if (!given)
    return Error{given.error().kind, path + ": " + onOneLine(given.error().message)};
  model->memory = options.files;
  if (Status status = onnx::takeWeights(*model, options.weights); !status)
    return badInput(path + ": " + onOneLine(status.error().message));
  onnx::DataRows rows;
  auto imported = [&](const onnx::DimReplacements &dims) {
    auto importer = std::make_unique<onnx::GraphImporter>(context, *model, path, options, dims);
    importer->dataRows = rows;
    return importer;
  };
  auto importer = imported(*given);
  auto module = importer->run();
  if (importer->dataRows.areNamed()) {
    rows = module ? importer->dataRows.next(**module) : onnx::DataRows::refused();
    importer = imported(*given);
    module = importer->run();
  }
  if (!module && !importer->shiftedDims().empty()) { // the file may know better
    onnx::DimReplacements declared = importer->shiftedDims();
    declared.insert(given->begin(), given->end());
    if (auto again = imported(declared)->run())
      module = std::move(again);
  } else if (module) {
    if (onnx::DimReplacements learnt = importer->learntDims(); !learnt.empty()) {
      learnt.insert(given->begin(), given->end());
      if (auto again = imported(learnt)->run())
        module = std::move(again);
    }
  }
  if (module) {
    freeUnusedInputs(**module);
    return module;
  }
  if (deciding)
    *deciding = importer->deciding;
  return Error{module.error().kind, onOneLine(module.error().message)};
}

} // namespace fusion
