// The executable meaning of every nn op on the host: the oracle for kernels, the backend of a machine
// without a GPU, and what folds constants.
#pragma once

#include "ir/base/BindSymbols.h"
#include "ir/base/Dim.h"
#include "ir/base/Tensor.h"
#include "ir/reference/WeightFiles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Operation.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fusion {

struct ReferenceOptions {
  /// The sum of `part` over the ranks of `group`, in `part`'s type or a wider float; empty: there is one
  /// rank.
  std::function<Result<Tensor>(const Tensor &part, std::string_view group)> allReduce;
  /// Where nn.weight finds its bytes; without it, nn.weight is an error.
  WeightFiles *weights = nullptr;
};

/// Runs one op of a graph, or the body of a fusion.group. Symbolic dims in attributes take their values from
/// `symbols`. Errors name the op, its location and the reason: operands that do not fit, a symbol without a
/// value, an unknown op, an element type that the op does not take.
Result<std::vector<Tensor>> evaluate(mlir::Operation *op, llvm::ArrayRef<Tensor> operands,
                                     const SymbolValues &symbols, const ReferenceOptions &options = {});

/// Runs the ops of a block and returns the operands of its terminator. A tensor is released after its last
/// use.
Result<std::vector<Tensor>> evaluateRegion(mlir::Block &block, llvm::ArrayRef<Tensor> arguments,
                                           const SymbolValues &symbols, const ReferenceOptions &options = {});

/// Whether ops of that name have a meaning here: a function of their own or, elementwise, their formula.
bool hasReference(mlir::OperationName name);
/// Whether it is a function of their own.
bool hasReferenceFunction(mlir::OperationName name);

/// The results of an op whose operands are all nn.constant, or nothing: an operand is no constant, a result
/// is larger than `maxElements` or depends on a symbol, the evaluation fails, or the op must not be folded
/// (constants, weights, collectives).
std::optional<llvm::SmallVector<mlir::Attribute>> foldWithReference(mlir::Operation *op, size_t maxElements);

/// Runs an entry function by the names of its arguments and results (`nn.name`; `arg0`…, `result0`… where
/// there is none). The function must outlive the interpreter and not change. `run` may be called from several
/// threads.
class Interpreter {
public:
  struct Options {
    /// As in ReferenceOptions.
    std::function<Result<Tensor>(const Tensor &part, std::string_view group)> allReduce;
    /// Values of symbols that no input has: the rank's number.
    SymbolValues symbols = {{std::string(rankSymbol), 0}};
  };
  /// Maps the weights: a missing or short file is an error here. `baseFolder` is the graph file's folder.
  static Result<Interpreter> create(mlir::func::FuncOp function, std::string baseFolder, Options options);
  static Result<Interpreter> create(mlir::func::FuncOp function, std::string baseFolder) {
    return create(function, std::move(baseFolder), Options());
  }
  /// With files that others have too.
  static Result<Interpreter> create(mlir::func::FuncOp function, std::shared_ptr<WeightFiles> weights,
                                    Options options);

  /// Host tensors. Errors: those of bindSymbols and of evaluate.
  Result<NamedTensors> run(const NamedTensors &inputs) const;
  llvm::ArrayRef<PortShape> inputs() const { return ports; }
  llvm::ArrayRef<std::string> outputs() const { return resultNames; }

private:
  mlir::func::FuncOp function;
  Options options;
  std::shared_ptr<WeightFiles> weights;
  std::vector<PortShape> ports;
  std::vector<std::string> resultNames;
};

} // namespace fusion
