// Loops whose condition counts: for (i = start; i < size; i += step).
#pragma once

#include "ir/base/Dim.h"

#include "mlir/IR/Value.h"

#include <optional>

namespace fusion::onnx {

/// What a step of a Loop computes, and what the loop begins with.
struct CountingStep {
  struct State {
    mlir::Value initial, inside, next; ///< before the loop, in a step, and after it
  };
  llvm::SmallVector<State> states;
  mlir::Value index;  ///< how many steps there were before
  mlir::Value goesOn; ///< whether there is another step
  mlir::Value first;  ///< whether there is a first one; null: there is
};

/// How many steps there are, if the condition asks of nothing but states that grow by a constant, and the
/// index, whether they are below sizes, before the first step of the same as after each.
std::optional<Dim> countedSteps(const CountingStep &step);

} // namespace fusion::onnx
