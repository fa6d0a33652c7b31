// Random inputs for the check of a subgraph, and how near its two computations must come.
#pragma once

#include "ir/base/BindSymbols.h"
#include "ir/base/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/ArrayRef.h"

#include <random>

namespace fusion {

/// What symbols stand for in a trial: those named like a batch, and the others. Unequal sizes see more; where
/// a graph takes two symbols as equal, all have to be.
struct TrialSizes {
  int64_t batch, other;
};
inline constexpr TrialSizes unequalSizes{2, 5}, equalSizes{4, 4};
/// For graphs that are right for neither: for one position, for multiples of 8, for what a convolution needs.
inline constexpr TrialSizes otherSizes[] = {{2, 1}, {1, 1}, {8, 8}, {2, 16}, {2, 64}, {2, 512}};

/// The values of all symbols in the ports' shapes.
SymbolValues trialSymbols(llvm::ArrayRef<PortShape> ports, const TrialSizes &sizes);

/// Floats of mixed signs around `magnitude`, one in sixteen `outlier` times as large and one in sixteen 1000
/// times smaller.
struct TrialValues {
  float magnitude = 1, outlier = 30;
};

/// Integers are from 0 to 3, so that they can be indices. `symbols`: the values of all in the ports' shapes.
NamedTensors randomInputs(llvm::ArrayRef<PortShape> ports, const SymbolValues &symbols,
                          const TrialValues &values, std::mt19937 &random);
NamedTensors randomInputs(llvm::ArrayRef<PortShape> ports, const TrialSizes &sizes, const TrialValues &values,
                          std::mt19937 &random);

/// Makes the places of new rows, which nn.cache_write takes from inputs of `function`, follow each other.
void orderRows(mlir::func::FuncOp function, llvm::ArrayRef<PortShape> ports, NamedTensors &inputs);

/// Makes the experts that nn.expert_matmul takes from inputs of `function` ones that there are: what others
/// are compared with is nobody's, but reads a neighbour's matrix.
void keepExperts(mlir::func::FuncOp function, llvm::ArrayRef<PortShape> ports, NamedTensors &inputs);

/// Largest relative L2 distance of two computations that round to `type` a few times each, and whose longest
/// sum in f32 has as many terms as the largest dim of the inputs.
double roundingTolerance(DType type, const NamedTensors &inputs);
/// Whether an op in `function` rounds floats to i8 or u8, so that its results may differ by ties.
bool quantises(mlir::func::FuncOp function);
/// Whether tensors of i8 or u8 differ by ties only: in at most one element of 32, and one more, by one step.
/// Sums that are added up in another order may lie on either side of the middle between two steps; in a small
/// tensor one such element is more than roundingTolerance() allows. For functions that quantise; integer
/// arithmetic has no ties.
bool differsByTies(const Tensor &actual, const Tensor &expected);
/// The same of two that round at the same places, so that only what f32 sums in another order can flip a
/// rounding. One rounding to f16 or bf16 more or less is three times as far.
double sameRoundingTolerance(DType type, const NamedTensors &inputs);

} // namespace fusion
