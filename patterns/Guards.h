// What patterns may say in PDLL constraints: named guards, and kinds of ops for ops without a name.
#pragma once

#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace fusion {

/// What a guard can be given: a value, an op, or an attribute written in the pattern.
using GuardArgument = std::variant<mlir::Value, mlir::Operation *, mlir::Attribute>;

/// Nothing if the guard holds, else what it saw: `f32 vs bf16`, `2 uses`.
using Guard = std::function<std::optional<std::string>(llvm::ArrayRef<GuardArgument>)>;

/// The guard of that name, or null. SameElementType, HasOneUse, StaticLastDim, SameShape, IsFloat, PerTensor,
/// IsConstant.
const Guard *findGuard(llvm::StringRef name);
/// All names of guards and kinds, sorted, for messages.
llvm::SmallVector<llvm::StringRef> guardNames();

/// What an op without a name in a pattern, `op<>`, stands for: every op with a trait or an interface.
struct OpKind {
  llvm::StringRef guard;   ///< the constraint that says it: IsNorm
  llvm::StringRef article; ///< in messages: "a norm"
  bool (*holds)(mlir::Operation *op);
  bool (*names)(mlir::RegisteredOperationName name); ///< whether ops of that name are of the kind
};

/// IsActivation, IsNorm, IsQuantize.
llvm::ArrayRef<OpKind> opKinds();
/// The kind of which `guard` is the constraint, or null.
const OpKind *findOpKind(llvm::StringRef guard);
/// "a norm (nn.layer_norm, nn.rms_norm)", with the ops that are loaded.
std::string describe(const OpKind &kind, mlir::MLIRContext *context);

} // namespace fusion
