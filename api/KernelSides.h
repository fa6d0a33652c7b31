// The two computations that a check of kernels compares, on one rank or on all ranks of a mesh.
#pragma once

#include "api/RankReference.h"
#include "runtime/RankGroup.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>
#include <random>
#include <vector>

namespace fusion {

class KernelSides {
public:
  /// `function`: the reference's, which must outlive this and not change. Errors: those of Interpreter and of
  /// RankReference.
  static Result<KernelSides> create(mlir::func::FuncOp function);
  /// The kernels of `plan`, of as many ranks: on GPUs if there are as many, else emulated. Errors: those of
  /// Executor and of RankGroup.
  Status load(ProgramPlan plan);

  /// One rank's.
  llvm::ArrayRef<PortShape> ports() const { return interpreter->inputs(); }
  /// The same tensors for all ranks, but of inputs that are divided a shard for each.
  NamedTensors randomInputs(const SymbolValues &symbols, std::mt19937 &random) const;
  Result<NamedTensors> expected(const NamedTensors &inputs) const;
  /// On the host, as the expected ones are.
  Result<NamedTensors> actual(const NamedTensors &inputs);

private:
  mlir::func::FuncOp function;
  int64_t ranks = 1;
  std::optional<Interpreter> interpreter;
  std::optional<RankReference> ofRanks; ///< if there are several
  std::unique_ptr<Executor> executor;
  std::unique_ptr<RankGroup> group;
};

} // namespace fusion
