// An operand of a matmul: strided elements of a region input, which may be quantised. A quantised one is
// decoded where it is read: q (8 or 4 bits) becomes (q - zero point) * scale, rounded to the type of
// nn.dequantize, or, for integer matmuls, q - zero point.
#pragma once

#include "codegen/InputView.h"
#include "ir/dialect/Types.h"

#include "llvm/ADT/SmallPtrSet.h"

namespace fusion::matmul {

/// A scale or a zero point: an entry for each block of rows and each block of columns of the operand.
struct ScaleOrZero {
  nn::ConstantOp literal; ///< one for all, known now; else they lie in memory:
  unsigned input = 0;     ///< region input
  DType type = DType::F32;
  bool packed = false;
  Dim offset = 0;
  DimShape rowStrides; ///< of A: one for each of Problem::rowDims; of B: one, along k
  Dim columnStride = 0;
  Dim expertStride = 0; ///< of B: where each expert has its own
  int64_t rowBlock = 1, columnBlock = 1;

  bool alongRows() const;
  bool alongColumns() const { return !literal && !(columnStride == Dim(0)); }
};

struct Decode {
  std::optional<ScaleOrZero> scale, zero;
  DType type = DType::F32; ///< of a decoded element: f32, f16 or bf16 with a scale, i32 without
  bool unrounded = false;  ///< the graph does not say that it is rounded to that type
};

/// An operand with its leading dims broadcast to the result's. Strides in elements.
struct Operand {
  unsigned input = 0;      ///< region input
  DType type = DType::F32; ///< of the elements in memory
  bool packed = false;     ///< two to a byte
  Dim offset = 0;
  DimShape batchStrides; ///< one for each of Problem::batch
  Dim rowStride = 0;     ///< of A along m, of B along k
  Dim columnStride = 0;  ///< of A along k, of B along n
  std::optional<Decode> decode;

  /// The type in which elements are multiplied.
  DType value() const { return decode ? decode->type : type; }
};

/// What a value of the region is as an operand, before it is laid out: a view of an input and how it is
/// decoded. Shapes and strides of scales and zero points have the view's rank; a dim with one entry for
/// `block` elements has that block.
struct Source {
  struct Scales {
    nn::ConstantOp literal;
    unsigned input = 0;
    DType type = DType::F32;
    View view; ///< stride 0 where there is one entry for all
    llvm::SmallVector<int64_t> blocks;
  };
  unsigned input = 0;
  DType type = DType::F32;
  View view;
  std::optional<Scales> scale, zero;
  std::optional<DType> decoded;
  bool unrounded = false; ///< see Decode
};

/// The source of `value`, or why it is none.
std::variant<Source, std::string> sourceOf(const Region &region, const KernelContext &context,
                                           mlir::Value value);

/// The ops of the region that decode operands of its matmuls.
llvm::SmallPtrSet<mlir::Operation *, 8> decodingOps(const Region &region);

/// The operand as [batch…, rows, columns]: rank 1 gets its missing dim, `transpose` swaps the last two.
Operand makeOperand(const Source &source, bool transpose, bool columnIfVector, const DimShape &batch,
                    Dim &rows, Dim &columns);

} // namespace fusion::matmul
