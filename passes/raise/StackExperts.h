// One tensor for all experts from one for each.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

/// `parts`, all of one type, stacked along a new first dim. Quantised parts stay quantised: nn.dequantize of
/// stacks.
mlir::Value stackParameters(llvm::ArrayRef<mlir::Value> parts, Raiser &raiser);

/// What every expert computes from values that all share and parameters of its own.
class ExpertBodies {
public:
  /// `index` is [rows..., slots].
  ExpertBodies(mlir::Value index, Raiser &raiser) : index(index), raiser(raiser) {}

  /// `values`, [rows..., n], one for each expert, as [rows..., slots, n]: for each slot that of its expert.
  /// Null where the experts do not compute the same; reason() says why.
  mlir::Value routed(llvm::ArrayRef<mlir::Value> values);
  const std::string &reason() const { return problem; }

private:
  /// One operand of all experts' op: of all of them the same, of each its own parameter, or routed.
  struct Lifted {
    mlir::Value value; ///< shared or routed
    llvm::SmallVector<mlir::Value> parameters;
    bool isRouted = false;
  };
  std::optional<Lifted> lift(llvm::ArrayRef<mlir::Value> values);
  mlir::Value apply(llvm::ArrayRef<mlir::Operation *> ops, llvm::ArrayRef<Lifted> operands);
  mlir::Value multiply(nn::MatmulOp first, const Lifted &x, const Lifted &w);
  mlir::Value elementwise(mlir::Operation *first, llvm::ArrayRef<Lifted> operands);
  mlir::Value sliced(nn::SliceOp first, const Lifted &x);
  std::nullopt_t fail(std::string reason);

  mlir::Value index;
  Raiser &raiser;
  std::string problem;
  llvm::DenseMap<mlir::Value, Lifted> known; ///< by the first expert's value
};

} // namespace fusion::raise
