// Named guards that patterns call as PDLL constraints, and C++ code calls directly.
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
/// All names, sorted, for messages.
llvm::SmallVector<llvm::StringRef> guardNames();

} // namespace fusion
