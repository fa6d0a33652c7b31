// Builds an nn.loop: its body is imported into a function of its own.
#pragma once

#include "ir/import/NodeImporter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fusion::onnx {

/// From its construction to finish() what the node builds goes into the body. There, values from outside are
/// used as they are; finish() hands them in. Without finish() nothing is left of it.
class LoopBuilder {
public:
  explicit LoopBuilder(NodeImporter &node);
  ~LoopBuilder();
  LoopBuilder(const LoopBuilder &) = delete;
  LoopBuilder &operator=(const LoopBuilder &) = delete;

  /// One more value of the state, built outside: what it is in a step. The first one is the condition of a
  /// loop that has one.
  mlir::Value state(mlir::Value initial);
  /// What the n-th value of the state is in the next step. Has its shape, or the node fails.
  void next(unsigned state, mlir::Value value);
  /// How many steps there were before, i64.
  mlir::Value index();
  /// Entry `x` of each of the `steps` steps; the number of the state that holds all, along dim 0.
  unsigned stack(mlir::Value x, const Dim &steps);

  /// The last values of the state; empty where the node failed.
  mlir::SmallVector<mlir::Value> finish(std::optional<Dim> steps, bool conditional = false);

private:
  struct State {
    mlir::Value initial, next;
    bool isStack = false;
  };
  /// Values from outside become arguments, constants are copied.
  void capture();

  NodeImporter &n;
  mlir::OpBuilder::InsertPoint outside;
  bool isOutermost;
  mlir::func::FuncOp function;
  mlir::Block *block;
  std::vector<State> states;
  mlir::SmallVector<mlir::Value> captured;
  std::optional<unsigned> indexState;
};

} // namespace fusion::onnx
