#include "api/Trial.h"

#include "ir/dialect/InPlace.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/TypeUtilities.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace fusion {

static Tensor randomTensor(DType type, Shape shape, const TrialValues &chosen, std::mt19937 &random) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> kind(0, 15), integer(0, 3);
  std::vector<float> values(static_cast<size_t>(elementCount(shape)));
  for (float &value : values) {
    if (!isFloat(type)) {
      value = static_cast<float>(type == DType::Bool ? integer(random) & 1 : integer(random));
      continue;
    }
    int which = kind(random);
    value = normal(random) * chosen.magnitude * (which == 0 ? chosen.outlier : which == 1 ? 1e-3f : 1.f);
  }
  return Tensor::of<float>(DType::F32, std::move(shape), values).convertedTo(type);
}

SymbolValues trialSymbols(llvm::ArrayRef<PortShape> ports, const TrialSizes &sizes) {
  SymbolValues symbols;
  for (const PortShape &port : ports)
    for (const Dim &dim : port.shape)
      for (const std::string &symbol : dim.symbols())
        symbols[symbol] = llvm::StringRef(symbol).contains_insensitive("batch") ? sizes.batch : sizes.other;
  return symbols;
}

NamedTensors randomInputs(llvm::ArrayRef<PortShape> ports, const TrialSizes &sizes, const TrialValues &values,
                          std::mt19937 &random) {
  return randomInputs(ports, trialSymbols(ports, sizes), values, random);
}

NamedTensors randomInputs(llvm::ArrayRef<PortShape> ports, const SymbolValues &symbols,
                          const TrialValues &values, std::mt19937 &random) {
  NamedTensors inputs;
  for (const PortShape &port : ports) {
    Shape shape;
    for (const Dim &dim : port.shape)
      shape.push_back(std::max<int64_t>(*dim.evaluate(symbols), 0));
    inputs[port.name] = randomTensor(port.type, std::move(shape), values, random);
  }
  return inputs;
}

/// The argument of the function that the value is, perhaps through reshapes, casts and a group's operand; or
/// null.
static mlir::BlockArgument argumentOf(mlir::Value value) {
  while (true) {
    value = nn::behindReshapes(value);
    if (auto cast = value.getDefiningOp<nn::CastOp>()) {
      value = cast.getX();
      continue;
    }
    auto argument = llvm::dyn_cast<mlir::BlockArgument>(value);
    auto group = argument ? llvm::dyn_cast<GroupOp>(argument.getOwner()->getParentOp()) : GroupOp();
    if (!group)
      return argument;
    value = group.getInputs()[argument.getArgNumber()];
  }
}

void orderRows(mlir::func::FuncOp function, llvm::ArrayRef<PortShape> ports, NamedTensors &inputs) {
  function.walk([&](nn::CacheWriteOp write) {
    auto argument = argumentOf(write.getRows());
    auto input = argument ? inputs.find(ports[argument.getArgNumber()].name) : inputs.end();
    if (input == inputs.end())
      return;
    Tensor &rows = input->second;
    int64_t each = 1; // rows of an entry: no dim behind them has more than one
    for (int64_t size : rows.shape())
      each = size == 1 ? each : size;
    std::vector<float> places = rows.toFloats();
    for (size_t i = 0; i < places.size(); ++i)
      if (i % static_cast<size_t>(each) != 0)
        places[i] = places[i - 1] + 1;
    rows = Tensor::of<float>(DType::F32, rows.shape(), places).convertedTo(rows.type());
  });
}

void keepExperts(mlir::func::FuncOp function, llvm::ArrayRef<PortShape> ports, NamedTensors &inputs) {
  function.walk([&](nn::ExpertMatmulOp multiply) {
    auto argument = argumentOf(multiply.getIndex());
    auto input = argument ? inputs.find(ports[argument.getArgNumber()].name) : inputs.end();
    const int64_t experts = tensorType(multiply.getW()).getDimSize(0);
    if (input == inputs.end() || mlir::ShapedType::isDynamic(experts))
      return;
    std::vector<int64_t> named = input->second.toInts();
    for (int64_t &expert : named)
      expert %= experts;
    input->second =
        Tensor::of<int64_t>(DType::I64, input->second.shape(), named).convertedTo(input->second.type());
  });
}

/// What sums in f32 may differ by when their terms are added up in another order.
static double sumTolerance(const NamedTensors &inputs) {
  int64_t longest = 1;
  for (const auto &[name, tensor] : inputs)
    for (int64_t size : tensor.shape())
      longest = std::max(longest, size);
  return 1e-5 * std::max(1., std::sqrt(static_cast<double>(longest) / 1024));
}

double roundingTolerance(DType type, const NamedTensors &inputs) {
  switch (type) {
  case DType::F16:
    return 2e-3;
  case DType::BF16:
    return 1.5e-2;
  case DType::F8E4M3:
    return 5e-2;
  case DType::F8E5M2:
    return 1e-1;
  case DType::I8:
  case DType::U8:
    return 1e-2; // quantised: a value between two steps goes to either
  default:
    return isFloat(type) ? sumTolerance(inputs) : 0;
  }
}

bool quantises(mlir::func::FuncOp function) {
  auto isOf = [](mlir::Value value, auto holds) {
    std::optional<DType> type = dtypeOf(mlir::getElementTypeOrSelf(value.getType()));
    return type && holds(*type);
  };
  return function
      .walk([&](mlir::Operation *op) {
        const bool toSteps = llvm::any_of(op->getResults(), [&](mlir::Value result) {
          return isOf(result, [](DType type) { return type == DType::I8 || type == DType::U8; });
        });
        const bool fromFloats = llvm::any_of(op->getOperands(), [&](mlir::Value operand) {
          return isOf(operand, [](DType type) { return isFloat(type); });
        });
        // A group has operands and results of any types: its ops decide.
        return toSteps && fromFloats && op->getNumRegions() == 0 ? mlir::WalkResult::interrupt()
                                                                 : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

bool differsByTies(const Tensor &actual, const Tensor &expected) {
  if ((actual.type() != DType::I8 && actual.type() != DType::U8) || actual.type() != expected.type() ||
      actual.shape() != expected.shape())
    return false;
  const std::vector<int64_t> a = actual.toInts(), b = expected.toInts();
  int64_t ties = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) > 1)
      return false;
    ties += a[i] != b[i];
  }
  return ties <= 1 + static_cast<int64_t>(a.size()) / 32;
}

double sameRoundingTolerance(DType type, const NamedTensors &inputs) {
  switch (type) {
  case DType::F16:
    return 6e-5;
  case DType::BF16:
    return 5e-4;
  case DType::F8E4M3:
    return 6e-3;
  case DType::F8E5M2:
    return 1.2e-2;
  default:
    return roundingTolerance(type, inputs);
  }
}

} // namespace fusion
