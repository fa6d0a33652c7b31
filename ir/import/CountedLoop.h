// Loops whose condition counts: for (i = start; i < size; i += step).
#pragma once

#include "ir/base/Dim.h"

#include "mlir/IR/Value.h"

#include <optional>

namespace fusion::onnx {

/// What a step of a Loop computes, and what the loop begins with.
struct CountingStep {
  mlir::Value goesOn;                    ///< whether there is another step
  llvm::SmallVector<mlir::Value> states; ///< in the step
  llvm::SmallVector<mlir::Value> next;   ///< of each state
  llvm::ArrayRef<mlir::Value> initial;   ///< of each state
  mlir::Value first;                     ///< whether there is a first step; null: there is
};

/// How many steps there are, if the condition compares a state that grows by a constant with a size, before
/// the first step as after each.
std::optional<Dim> countedSteps(const CountingStep &step);

} // namespace fusion::onnx
