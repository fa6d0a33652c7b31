// The arithmetic of one element of a pointwise op as CUDA expressions; the same roundings as ir/reference.
#pragma once

#include "codegen/KernelWriter.h"

namespace fusion {

/// The type in which a value of element type `type` is held in a register: f32 for floats up to f32 (already
/// rounded to `type`), f64, bool, or the integer type itself.
llvm::StringRef registerType(DType type);

/// `to_f32(load(in0 + i))`: the register value of an element. `store(out0 + i, from_f32<f16>(x))`: the
/// statement, without semicolon, that stores a register value.
/// `settled`: by load_settled.
std::string loadElement(DType type, llvm::StringRef pointer, llvm::StringRef index, bool settled = false);
std::string storeElement(DType type, llvm::StringRef pointer, llvm::StringRef index, llvm::StringRef value);

/// `operands` are register expressions (names or literals). Returns an expression rounded to the result's
/// type. Asserts isScalarOp(op).
std::string scalarExpression(mlir::Operation *op, llvm::ArrayRef<std::string> operands);
/// The rest of nn.quantize behind the division, to any type: rounded, shifted (if `zero` is not empty), saturated.
std::string quantizedExpression(DType to, const std::string &quotient, const std::string &zero);
/// Pointwise ops, for which scalarExpression can be called.
bool isScalarOp(mlir::Operation *op);
/// A literal that round-trips: `9.99999997e-07f`, `inf_f32()`, `true`, `42ll`; negative ones in parentheses.
std::string literal(DType type, double value);
/// The same for integer types and bool, exact over the whole range (unsigned types: the bits).
std::string integerLiteral(DType type, int64_t value);
/// An f32 expression rounded to `type`: `round_to<f16>(x)`; x itself for f32.
std::string rounded(DType type, llvm::StringRef expression);
/// The same of a `name` (mul, add, sub) of two expressions that are already values of `type`: `mul_to<bf16>(a, b)`.
std::string roundedPair(DType type, llvm::StringRef name, llvm::StringRef a, llvm::StringRef b);
/// The x of `rounded(type, x)`; nothing for any other text, and for types to which nothing is rounded.
std::optional<std::string> unrounded(DType type, llvm::StringRef text);

} // namespace fusion
