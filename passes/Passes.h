// The passes, as Passes.td describes them.
#pragma once

#include "ir/dialect/Dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace fusion {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

/// Whether an attention with large heads has a kernel and stays. Asked for all of a function before the first
/// of them goes.
using KeepsAttention = std::function<bool(nn::AttentionOp)>;
std::unique_ptr<mlir::Pass> createDecomposeAttention(KeepsAttention keeps);

} // namespace fusion
