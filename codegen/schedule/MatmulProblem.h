// What a matmul kernel computes: C[z][m][n] = Σ_k A[z][m][k] B[z][k][n], then scalar ops on C's elements.
// Several matmuls of one A share a kernel: side by side, each block working for one of them, or combined
// element by element by the scalar ops, where each block computes all.
#pragma once

#include "codegen/body/KernelSource.h"
#include "codegen/schedule/MatmulOperand.h"

namespace fusion::matmul {

/// nn.matmul, or nn.expert_matmul, where a row's B is that of the expert which it is routed to; the result of
/// either, or a slice of its columns, which is the product with as many columns of B.
class Product {
public:
  Product() = default;
  explicit Product(mlir::Value result) : y(result) {}

  /// Null where `op` is none.
  static Product of(mlir::Operation *op) {
    return llvm::isa<nn::MatmulOp, nn::ExpertMatmulOp>(op) ? Product(op->getResult(0)) : Product();
  }
  explicit operator bool() const { return y != nullptr; }
  bool operator==(const Product &other) const = default;
  mlir::Value getY() const { return y; }
  mlir::Value getA() const { return op()->getOperand(0); }
  mlir::Value getB() const { return op()->getOperand(1); }
  /// Whether the last dim of the result counts columns of B.
  bool hasColumns() const {
    auto matmul = llvm::dyn_cast<nn::MatmulOp>(op());
    return !matmul || tensorType(matmul.getB()).getRank() > 1;
  }
  bool getTransposeA() const {
    auto matmul = llvm::dyn_cast<nn::MatmulOp>(op());
    return matmul && matmul.getTransposeA();
  }
  bool getTransposeB() const {
    auto matmul = llvm::dyn_cast<nn::MatmulOp>(op());
    return matmul ? matmul.getTransposeB() : llvm::cast<nn::ExpertMatmulOp>(op()).getTransposeW();
  }
  /// The op that multiplies.
  mlir::Operation *op() const {
    auto slice = y.getDefiningOp<nn::SliceOp>();
    return slice ? slice.getX().getDefiningOp() : y.getDefiningOp();
  }

private:
  mlir::Value y;
};

/// One of the matmuls of A.
struct Matmul {
  Product op;
  Operand b;
  Dim n = 1;
  llvm::SmallVector<unsigned> outputs; ///< region outputs made from it; all of them when combined
};

/// Which expert's B a row is multiplied by: nn.expert_matmul. Operand::batchStrides of B has one entry, the
/// experts' stride.
struct Routing {
  unsigned input = 0; ///< region input: an expert for each row of A
  View view;
  int64_t experts = 0;
};

/// Rows that a kernel is chosen for if the choice must not depend on their number: more than kernels for a
/// few rows take.
constexpr int64_t rowsOfAnyBatch = 17;

struct Problem {
  Product op; ///< the first matmul's
  std::vector<Matmul>
      matmuls; ///< at least one; several are never batched, and B is either transposed in all or in none
  bool combined = false; ///< several matmuls, combined element by element
  DimShape batch;        ///< empty when folded into m
  Dim m = 1, n = 1, k = 0;
  int64_t leastRows = 0, mostRows = INT64_MAX; ///< what is known of m
  /// All rows of A: the leading dims, if folded, and m. `m` is their product.
  DimShape rowDims, rowStrides;
  Operand a, b;                   ///< b and n: the first matmul's
  std::optional<Routing> routing; ///< batch is empty
  /// To what products are rounded before anything else: their own type, or the 16-bit one that they are all
  /// cast to.
  DType result = DType::F32;
  bool narrow = false; ///< all results of the region have 16 bits or fewer
  bool folded = false; ///< B is the same for all leading dims, which became rows of A
  /// The ops that compute A, where it is no input: each block does so, into the shared array `normal`.
  llvm::SmallVector<mlir::Operation *> prologue;
  llvm::SmallVector<unsigned> prologueOutputs; ///< region outputs made by them
  /// Where gemm_swap_ab normalises the rows of A, whose squares have been summed up (swap_ab_norm.cuh): the
  /// norm, and the region inputs of its rows and weight. A is then as it is before the norm.
  struct Norm {
    nn::RmsNormOp op;
    unsigned rows = 0, weight = 0;
    View view; ///< of the weight
  };
  std::optional<Norm> norm = {};
  /// Whether gemm_swap_ab, or gemm_swap_codes, also finds the largest element of each row
  /// (arg_max_epilogue.cuh), and whether it stores the elements as well.
  enum class Largest : uint8_t { None, Found, FoundAlone } largest = Largest::None;
  int64_t headTiles = 0; ///< of 64 columns that gemm_swap_ab takes at once, to have whole heads; 0: any

  Dim batchCount() const { return product(batch); }
  /// Several matmuls, each with blocks of its own.
  bool sideBySide() const { return matmuls.size() > 1 && !combined; }
  /// Accumulators of a block.
  size_t accumulators() const { return combined ? matmuls.size() : 1; }
};

/// The problem, or why the region is none.
std::variant<Problem, std::string> analyse(const Region &region, const KernelContext &context);
/// The same of nn.expert_matmul.
std::variant<Problem, std::string> analyseExperts(const Region &region, const KernelContext &context);
/// Gives the scales of an operand one stride for each of `rows` dims. The reason if they vary otherwise.
std::optional<std::string> placeScales(Operand &operand, size_t rows);

/// Rows of A that a block multiplies at once, of those that a kernel for few rows takes: all, or some of an
/// expert's.
int64_t rowsAtOnce(const Problem &problem);
/// How many groups of rows have a B of their own, at most.
Dim expertGroups(const Problem &problem);

/// The stride of a single index that runs over all of `shape`, if there is one.
std::optional<Dim> mergedStride(llvm::ArrayRef<Dim> shape, llvm::ArrayRef<Dim> strides);

/// Why the ops after the matmuls, all but those of the prologue, cannot be written, or nothing.
std::optional<std::string> epilogueRefuses(const Region &region, const KernelContext &context,
                                           llvm::ArrayRef<mlir::Operation *> prologue);

/// The ops of the region that compute the product's A, a norm among them; none if there is no norm.
llvm::SmallVector<mlir::Operation *> prologueOps(const Region &region, const Product &matmul);
/// The most rows for which a kernel of few computes A too; 0: for none.
int64_t prologueRows(const Problem &problem);
/// The bytes of A that a block computes.
int64_t prologueBytes(const Problem &problem);
/// What computes A, and the matmuls of it, as two kernels.
std::pair<Region, Region> splitPrologue(const Region &region, const Problem &problem);
/// Why A cannot be computed in a prologue, or nothing. For a problem that is complete otherwise.
std::optional<std::string> refusesPrologue(const Region &region, const KernelContext &context,
                                           const Problem &problem);
/// The registers that a thread has to compute rows of A.
struct PrologueRegisters {
  int64_t held;  ///< values of its row
  int64_t ahead; ///< of 32 bits, for what it asks for before it computes; 0: each value when it is needed
};
/// Lines that wait for the kernels before this one and compute A, with a block of `threads`, to the shared
/// array `normal`: of type `arrayType`, or a pointer where that is empty.
void emitPrologue(body::KernelSource &source, body::Code &code, const Region &region,
                  const KernelContext &context, const Problem &problem, int64_t threads,
                  const std::string &arrayType, PrologueRegisters registers);

/// The register type of the sum: f32, f64, or an unsigned integer, which wraps as the signed one does.
DType sumType(DType operand);

/// Quantised matmuls that are combined, and what combines them, as two kernels; nothing if they are none, or
/// cannot be taken apart. The second one reads the products behind the region's inputs.
std::optional<std::pair<Region, Region>> combinedApart(const Region &region, const KernelContext &context,
                                                       const Problem &problem);

/// Finds out which outputs belong to which matmuls. The reason if these do not fit together.
std::optional<std::string> arrangeMatmuls(const Region &region, const KernelContext &context,
                                          Problem &problem);

Dim blockCount(const Problem &problem, int64_t tileM, int64_t tileN);
/// The tiles of columns of all matmuls.
Dim columnTiles(const Problem &problem, int64_t tileN);
/// Whether neighbours in memory of A, or of B, are neighbours along k; else they are rows of A, or columns of
/// B.
bool isKMajor(const Problem &problem, bool isA);
/// Whether A, or B, can be read `length` neighbours at a time, at addresses that are multiples of `alignment`
/// elements.
bool readsVectors(const Problem &problem, bool isA, int64_t length, int64_t alignment);
/// Neighbouring results that are stored at once: the largest power of two up to `most` that divides every n.
int64_t resultVector(const Problem &problem, int64_t most);

/// A kernel of the problem with its operations counted.
KernelDraft counted(KernelDraft draft, const Problem &problem);

// The templates: what they take, and their kernels.
KernelDraft emitMma(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitSm90(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitSm100(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitFma(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitGemv(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitGemvKn(const Region &region, const KernelContext &context, const Problem &problem);
KernelDraft emitSmallM(const Region &region, const KernelContext &context, const Problem &problem);
/// Whether tensor cores multiply the bytes in memory as they are: 8-bit integers or f8, scales outside the
/// sum.
bool multipliesBytes(const Problem &problem);
/// Whether there is an instruction for these bytes, whatever their scales.
bool multipliesTypes(const Problem &problem);
/// The type in which tensor cores multiply these, if they can.
std::optional<DType> tensorCoreType(const Problem &problem);
/// The most rows of A for which gemv computes a column of the result in a warp; 0: for none.
int64_t gemvRows(const Problem &problem);
/// The most rows of A for which gemv_kn computes a strip of columns in a block; 0: for none.
int64_t gemvKnRows(const Problem &problem);
/// The more of both.
int64_t fewRows(const Problem &problem);
/// The most rows of A that gemm_small_m takes; 0: for none.
int64_t smallMRows(const Problem &problem);
/// Whether gemm_small_m takes the problem, and is the faster one.
bool isSmallM(const Problem &problem);
/// The most rows of A that gemm_swap_ab takes on this target; 0: none.
int64_t swapABRows(const Problem &problem, const TargetInfo &target);
/// The same of operands that are both bytes, multiplied as they are: f8, or 8-bit integers.
int64_t swapBytesRows(const Problem &problem, const TargetInfo &target);
KernelDraft emitSwapAB(const Region &region, const KernelContext &context, const Problem &problem);
/// Why gemm_swap_codes does not take the problem, whatever its rows; nothing if it does.
std::optional<std::string> swapCodesRefusal(const Problem &problem, const TargetInfo &target);
/// The most rows of A that gemm_swap_codes takes on this target; 0: none.
int64_t swapCodesRows(const Problem &problem, const TargetInfo &target);
KernelDraft emitSwapCodes(const Region &region, const KernelContext &context, const Problem &problem);
/// Up to so many rows gemm_small_m_codes is taken where nothing is measured, and computes A too.
inline constexpr int64_t smallMCodesAlone = 4;
/// The most rows of A that gemm_small_m_codes takes on this target; 0: none.
int64_t smallMCodesRows(const Problem &problem, const TargetInfo &target);
/// Whether it takes all numbers of rows that there may be.
bool isSmallMCodes(const Problem &problem, const TargetInfo &target);
/// Whether it is taken without measuring others beside it: where it computes A, or multiplies integers. What
/// is decoded with the rounding of the graph takes it longer.
bool prefersSmallMCodes(const Problem &problem, const TargetInfo &target);
/// The warps of all of its blocks.
int64_t smallMCodesWarps(const Problem &problem, const TargetInfo &target);
KernelDraft emitSmallMCodes(const Region &region, const KernelContext &context, const Problem &problem);
/// So many neighbours of B along k, from a multiple of it on, share scale and zero point; 0: all.
int64_t neighboursPerScale(const Problem &problem);
/// Numbers of rows after which another tile of gemm_mma is better.
llvm::SmallVector<int64_t> tileLimits(const Problem &problem);
/// Why warpgroups do not multiply these rows, by gemm_sm90; nothing if they do: 16-bit floats of which TMA
/// reads rows at distances of whole 16 bytes, A along k, and at least 64 columns and 64 along k.
std::optional<std::string> sm90Refusal(const Problem &problem, const TargetInfo &target);
/// Numbers of rows after which another tile of it is better; none where it takes no number of rows.
llvm::SmallVector<int64_t> sm90Limits(const Problem &problem, const TargetInfo &target);
/// The same of gemm_sm100, by tcgen05.
std::optional<std::string> sm100Refusal(const Problem &problem, const TargetInfo &target);
llvm::SmallVector<int64_t> sm100Limits(const Problem &problem, const TargetInfo &target);

} // namespace fusion::matmul
