#include "ir/reference/Support.h"

#include "ir/dialect/SymbolicShapes.h"

namespace fusion {

Result<Interpreter> Interpreter::create(mlir::func::FuncOp function, std::string baseFolder,
                                        Options options) {
  return create(function, std::make_shared<WeightFiles>(std::move(baseFolder)), std::move(options));
}

Result<Interpreter> Interpreter::create(mlir::func::FuncOp function, std::shared_ptr<WeightFiles> weights,
                                        Options options) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return badInput(fmt::format("function {} has no single-block body", function.getName().str()));
  Interpreter interpreter;
  interpreter.function = function;
  interpreter.options = std::move(options);
  interpreter.weights = std::move(weights);
  for (auto [index, argument] : llvm::enumerate(function.getArguments())) {
    auto type = llvm::dyn_cast<mlir::RankedTensorType>(argument.getType());
    std::optional<DType> element = type ? dtypeOf(type.getElementType()) : std::nullopt;
    std::string name = nn::argumentName(function, index);
    if (!element)
      return badInput(fmt::format("input {} is no tensor of a known element type", name));
    interpreter.ports.push_back({name, *element, nn::argumentDims(function, index)});
  }
  for (size_t i = 0; i < function.getNumResults(); ++i)
    interpreter.resultNames.push_back(nn::resultName(function, static_cast<unsigned>(i)));
  std::optional<Error> failure;
  function.walk([&](nn::WeightOp weight) {
    auto rank = interpreter.options.symbols.find(rankSymbol);
    auto tensor =
        interpreter.weights->load(weight, rank == interpreter.options.symbols.end() ? 0 : rank->second);
    if (!tensor && !failure)
      failure = tensor.error();
  });
  if (failure)
    return *failure;
  return interpreter;
}

Result<NamedTensors> Interpreter::run(const NamedTensors &inputs) const {
  auto symbols = bindSymbols(ports, inputs);
  if (!symbols)
    return symbols.error();
  symbols->insert(options.symbols.begin(), options.symbols.end());
  std::vector<Tensor> arguments;
  for (const PortShape &port : ports)
    arguments.push_back(inputs.find(port.name)->second);
  for (Tensor &argument : arguments) {
    if (argument.device().kind != Device::Kind::Host)
      return badInput("the reference takes tensors in host memory");
    argument = argument.dense();
  }
  ReferenceOptions how{options.allReduce, weights.get()};
  mlir::func::FuncOp entry = function;
  auto results = evaluateRegion(entry.getBody().front(), arguments, *symbols, how);
  if (!results)
    return results.error();
  NamedTensors named;
  for (auto [name, tensor] : llvm::zip(resultNames, *results))
    named[name] = std::move(tensor);
  return named;
}

} // namespace fusion
