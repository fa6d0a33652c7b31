// What a matmul kernel computes: C[z][m][n] = Σ_k A[z][m][k] B[z][k][n], then scalar ops on C's elements.
#pragma once

#include "codegen/ScalarCode.h"

namespace fusion::matmul {

/// An operand with its leading dims broadcast to the result's. Strides in elements.
struct Operand {
  unsigned input = 0; ///< region input
  DType type = DType::F32;
  Dim offset = 0;
  DimShape batchStrides; ///< one for each of Problem::batch
  Dim rowStride = 0;     ///< of A along m, of B along k
  Dim columnStride = 0;  ///< of A along k, of B along n
};

struct Problem {
  nn::MatmulOp op;
  DimShape batch; ///< empty when folded into m
  Dim m = 1, n = 1, k = 0;
  /// All rows of A: the leading dims, if folded, and m. `m` is their product.
  DimShape rowDims, rowStrides;
  Operand a, b;
  bool folded = false; ///< B is the same for all leading dims, which became rows of A

  Dim batchCount() const { return product(batch); }
};

/// The problem, or why the region is none.
std::variant<Problem, std::string> analyse(const Region &region, const KernelContext &context);

/// The stride of a single index that runs over all of `shape`, if there is one.
std::optional<Dim> mergedStride(llvm::ArrayRef<Dim> shape, llvm::ArrayRef<Dim> strides);

/// Code at one element of the result: the ops behind the product and the stores.
class Epilogue {
public:
  Epilogue(const Region &region, const KernelContext &context, const Problem &problem, KernelWriter &writer)
      : region(region), context(context), problem(problem), op(problem.op), writer(writer) {}

  /// `line` numbers all rows of the result (batch · M + m), `column` is n, `product` the sum in its register
  /// type, not yet rounded. Locals and statements; the caller has checked the bounds.
  void emit(const std::string &line, const std::string &column, const std::string &product);

  /// Why the ops behind the product cannot be written this way, or nothing.
  static std::optional<std::string> refuses(const Region &region, const KernelContext &context,
                                            nn::MatmulOp op);

private:
  std::string value(mlir::Value value);
  std::string input(unsigned index, const View &view);

  const Region &region;
  const KernelContext &context;
  const Problem &problem;
  nn::MatmulOp op;
  KernelWriter &writer;
  std::string line, column;
  llvm::DenseMap<mlir::Value, std::string> known;
};

/// The view of a region input seen through reshapes, transposes and slices inside the region.
std::optional<std::pair<unsigned, View>> inputView(const Region &region, const KernelContext &context,
                                                   mlir::Value value);

/// The register type of the sum: f32, f64, or an unsigned integer, which wraps as the signed one does.
std::string sumType(DType operand);

/// Declares rowStart, columnStart (the block's first row and column) and z (which product of the batch) from
/// the block's number.
void emitBlockPlace(KernelWriter &writer, const Problem &problem, int64_t tileM, int64_t tileN);
Dim blockCount(const Problem &problem, int64_t tileM, int64_t tileN);
/// Declares pointers `a` and `b` to the first elements of this batch's matrices.
void emitBases(KernelWriter &writer, const Problem &problem);
/// The offset of row `row` (an i64 expression) in A; may write lines.
std::string rowOffset(KernelWriter &writer, const Problem &problem, const std::string &row);
/// `index * stride`, or nothing for a zero stride.
std::string scaled(KernelWriter &writer, const std::string &index, const Dim &stride);
/// `line` of Epilogue::emit for row `row` of product z.
std::string resultLine(KernelWriter &writer, const Problem &problem, const std::string &row);

KernelDraft emitTensorCore(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitFma(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitSkinny(const Region &region, const KernelContext &context, const Problem &problem);
/// The type in which tensor cores multiply these, if they can.
std::optional<DType> tensorCoreType(const Problem &problem);
bool isSkinny(const Problem &problem);

} // namespace fusion::matmul
