// What a matmul kernel computes: C[z][m][n] = Σ_k A[z][m][k] B[z][k][n], then scalar ops on C's elements.
// Several products of one A share a kernel: side by side, each block working for one of them, or together,
// where the scalar ops combine them element by element and each block computes all.
#pragma once

#include "codegen/schedule/MatmulOperand.h"

namespace fusion::matmul {

/// One of the products of A.
struct Product {
  nn::MatmulOp op;
  Operand b;
  Dim n = 1;
  llvm::SmallVector<unsigned> outputs; ///< region outputs made from it; all of them when together
};

struct Problem {
  nn::MatmulOp op; ///< the first product's
  std::vector<Product>
      products; ///< at least one; several are never batched, and B is either transposed in all or in none
  bool together = false; ///< several products, combined element by element
  DimShape batch;        ///< empty when folded into m
  Dim m = 1, n = 1, k = 0;
  int64_t leastRows = 0, mostRows = INT64_MAX; ///< what is known of m
  /// All rows of A: the leading dims, if folded, and m. `m` is their product.
  DimShape rowDims, rowStrides;
  Operand a, b;        ///< b and n: the first product's
  bool folded = false; ///< B is the same for all leading dims, which became rows of A
  /// The ops that compute A, where it is no input: each block does so, into the shared array `normal`.
  llvm::SmallVector<mlir::Operation *> ahead;
  llvm::SmallVector<unsigned> outputsAhead; ///< region outputs made by them

  Dim batchCount() const { return product(batch); }
  /// Several products, each with blocks of its own.
  bool sideBySide() const { return products.size() > 1 && !together; }
  /// Accumulators of a block.
  size_t sums() const { return together ? products.size() : 1; }
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

  /// `line` numbers all rows of the result (batch · M + m), `column` is n, `sums` the sums in their register
  /// type, not yet rounded, of the products from `first` on. Locals and statements; the caller has checked
  /// the bounds.
  void emit(const std::string &line, const std::string &column, llvm::ArrayRef<std::string> sums,
            size_t first = 0);

  /// Why the ops behind the products, all but those of `ahead`, cannot be written this way, or nothing.
  static std::optional<std::string> refuses(const Region &region, const KernelContext &context,
                                            llvm::ArrayRef<mlir::Operation *> ahead);

private:
  std::string value(mlir::Value value);
  /// The scale or zero point that belongs to the element.
  std::string scale(mlir::Operation *op, mlir::Value operand);
  /// The element of an input, broadcast to the product's shape; with `block`, the index of `axis` counts blocks of as
  /// many.
  std::string input(unsigned index, const View &view, size_t axis = 0, int64_t block = 1);

  const Region &region;
  const KernelContext &context;
  const Problem &problem;
  nn::MatmulOp op;
  KernelWriter &writer;
  std::string line, column;
  llvm::DenseMap<mlir::Value, std::string> known;
};

/// The ops of the region that compute the product's A, a norm among them; none if there is no norm.
llvm::SmallVector<mlir::Operation *> opsAhead(const Region &region, nn::MatmulOp matmul);
/// The most rows for which a kernel of few computes A too; 0: for none.
int64_t rowsAhead(const Problem &problem);
/// The bytes of A that a block computes.
int64_t bytesAhead(const Problem &problem);
/// What computes A, and the products of it, as two kernels.
Steps stepsAhead(const Region &region, const Problem &problem);
/// Why A cannot be computed ahead of the products, or nothing. For a problem that is complete otherwise.
std::optional<std::string> whyNotAhead(const Region &region, const KernelContext &context, const Problem &problem);
/// Waits for the kernels before this one and computes A, if it is no input, with a block of `threads`.
void emitAhead(KernelWriter &writer, const Region &region, const KernelContext &context, const Problem &problem,
               int64_t threads);

/// The register type of the sum: f32, f64, or an unsigned integer, which wraps as the signed one does.
std::string sumType(DType operand);

/// Finds out which outputs belong to which products. The reason if the products do not fit together.
std::optional<std::string> arrangeProducts(const Region &region, const KernelContext &context,
                                           Problem &problem);

/// Declares rowStart, columnStart (the block's first row and column) and z (which product of the batch) from
/// the block's number.
void emitBlockPlace(KernelWriter &writer, const Problem &problem, int64_t tileM, int64_t tileN);
/// The same for blocks that compute all rows of a strip of columns: columnStart, z.
void emitStripPlace(KernelWriter &writer, const Problem &problem, int64_t columns);
Dim blockCount(const Problem &problem, int64_t tileM, int64_t tileN);
/// For products side by side: declares `product` (which one), `part` (the number of the block's columns in
/// it) and what differs between the products' B, from `place`, an i64 expression over the columns of all
/// products in tiles.
void emitProductChoice(KernelWriter &writer, const Problem &problem, const std::string &place, int64_t tileN);
/// The tiles of columns of all products.
Dim columnBlocks(const Problem &problem, int64_t tileN);
/// The columns of this block's product.
std::string widthText(KernelWriter &writer, const Problem &problem);
/// `index * stride` for B's strides along k and n, in this block's product; nothing for a zero stride.
std::string alongK(KernelWriter &writer, const Problem &problem, const std::string &index);
std::string alongN(KernelWriter &writer, const Problem &problem, const std::string &index);
/// `b`, `b1`: the name of what is there once for each product of a block.
std::string numbered(llvm::StringRef stem, size_t sum);
/// Whether rows of A, or columns of B (rows, where n is innermost), can be read `length` elements at a time, at addresses
/// that are multiples of `alignment` elements.
bool readsPieces(const Problem &problem, bool isA, int64_t length, int64_t alignment);
/// An expression that is `texts[product]`.
std::string chosen(llvm::ArrayRef<std::string> texts);
/// The terms, without the empty ones, as a sum; `0` if there are none.
std::string sumOf(llvm::ArrayRef<std::string> terms);
/// Calls `body(first)` for the products that a block stores: once, or in one branch for each product side by
/// side.
void forStoredProducts(KernelWriter &writer, const Problem &problem, llvm::function_ref<void(size_t)> body);

/// Declares pointers `a` and `b` (`b1`…) to the first elements of this batch's matrices, and to the scales and zero
/// points of quantised ones: `scaleA`, `zeroB1`.
void emitBases(KernelWriter &writer, const Problem &problem);
/// Declares pointers `row0`… to the rows of A of a kernel for few. Rows that may be beyond the last are the last one
/// again: what comes of them is not to be stored.
void emitRows(KernelWriter &writer, const Problem &problem);
/// The number of row i of such a kernel, as emitRows takes it.
std::string rowText(const Problem &problem, int64_t i);
/// The offset of row `row` (an i64 expression) in A; may write lines.
std::string rowOffset(KernelWriter &writer, const Problem &problem, const std::string &row);
/// The scale or zero point of A at `row`, `column` (i64 expressions over m and k), or of the block's product `sum`'s B
/// (over k and n): a register expression. May write lines.
std::string entryText(KernelWriter &writer, const Problem &problem, bool isA, size_t sum, bool isScale,
                      const std::string &row, const std::string &column);
/// Declares the zero point and the scale there, and returns their names, empty where there is none.
std::pair<std::string, std::string> emitEntries(KernelWriter &writer, const Problem &problem, bool isA, size_t sum,
                                                const std::string &row, const std::string &column);
/// The element `q` of A or B there (a register expression), decoded if it is quantised.
std::string elementValue(KernelWriter &writer, const Problem &problem, bool isA, size_t sum, const std::string &q,
                         const std::string &row, const std::string &column);
/// The same as f32, for kernels without tensor cores: `element` is as it was loaded, number `inner` of a piece of
/// `length` along k that begins at the local k (an empty `inner`: of one). `across`: its row of A, or column of B.
std::string factorText(KernelWriter &writer, const Problem &problem, bool isA, size_t sum, const std::string &element,
                       const std::string &across, const std::string &inner, int64_t length);
/// `index * stride`, or nothing for a zero stride.
std::string scaled(KernelWriter &writer, const std::string &index, const Dim &stride);
/// `line` of Epilogue::emit for row `row` of product z.
std::string resultLine(KernelWriter &writer, const Problem &problem, const std::string &row);

KernelDraft emitTensorCore(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitFma(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitSkinny(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitNarrow(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitStrip(const Region &region, const KernelContext &context, const Problem &problem);
/// Whether tensor cores multiply the bytes in memory as they are: 8-bit integers or f8, scales outside the sum.
bool multipliesBytes(const Problem &problem);
/// The type in which tensor cores multiply these, if they can.
std::optional<DType> tensorCoreType(const Problem &problem);
/// The most rows of A for which a warp may compute one column of the result; 0: for none.
int64_t skinnyRows(const Problem &problem);
bool isSkinny(const Problem &problem);
/// The most rows of A for which a block may compute a strip of columns; 0: for none.
int64_t stripRows(const Problem &problem);
bool isStrip(const Problem &problem);
/// The most rows of A that tensor cores take beside B straight from memory; 0: for none.
int64_t narrowRows(const Problem &problem);
bool isNarrow(const Problem &problem);
/// The most rows for which there is a kernel for few.
int64_t fewRows(const Problem &problem);
/// Numbers of rows after which another tile is better.
llvm::SmallVector<int64_t> tileLimits(const Problem &problem);

} // namespace fusion::matmul
