// What gemm_swap_ab and gemm_swap_codes share: the columns of C are the rows of wgmma, the rows of A its
// columns.
#pragma once

#include "codegen/schedule/MatmulSource.h"
#include "codegen/schedule/RowParts.h"

namespace fusion::matmul {

/// Rows that the kernel multiplies for as many as there are: 8, 16, 32, 64 or 128.
int64_t swappedRows(const Problem &problem);
/// The blocks of a cluster that share out K, of `tiles` tiles of columns, up to one a multiprocessor: the
/// fewest that keep two thirds of the multiprocessors busy. K has `mostSteps` steps.
int64_t swappedSplit(int64_t tiles, int64_t mostSteps, const TargetInfo &target);
/// Where Problem::largest: the warps of a block that store; what they find of each row, those of all blocks;
/// and shared memory for it.
constexpr int64_t warpsOfBlock = 4;
int64_t largestPartsOfRow(const Problem &problem, const TargetInfo &target);
int64_t largestBytes(const Problem &problem);
/// Blocks of gemm_swap_codes.
int64_t swapCodesBlocks(const Problem &problem, const TargetInfo &target);
/// Whether TMA reads it: rows at distances of whole 16 bytes, from a multiple of 16 bytes on. In elements of
/// `bits`.
bool readsTiles(const Dim &offset, const Dim &stride, int64_t bits);
/// The same of A.
bool readsSwappedRows(const Problem &problem);
/// Elements of A, and of bytes B, that lie in a box of 128 bytes along k.
int64_t swappedDepth(const Problem &problem);
/// Of boxes of `rows` by `length` elements: 64 or 128 bytes.
TensorMapArgument swappedMap(DType type, const Dim &offset, DimShape shape, const Dim &stride, int64_t rows,
                             int64_t length);
TensorMapArgument mapOfSwappedRows(const Problem &problem);

/// Heads of the columns `first` … `first + heads * width` of a matmul, as rows of a row graph.
struct HeadPart {
  row::Part *part = nullptr;
  unsigned matmul = 0;
  int64_t first = 0, width = 0, heads = 1;
  Dim inner = 1; ///< rows of A that follow each other within a head, in the order of the part's rows
};
/// What gemm_swap_ab makes of its columns where heads follow: rotations, norms of a head, writes in place.
struct TileHeads {
  Region rounding, region; ///< up to the heads, and from there on; inputs as the kernel's, then the heads'
  llvm::SmallVector<View> inputs, outputs; ///< of `region`
  llvm::SmallVector<unsigned> results;     ///< which outputs of the kernel its outputs are
  row::Parts parts;
  std::vector<HeadPart> heads;
  Problem problem; ///< of `rounding`
  DType type = DType::F32;
  int64_t tiles = 1; ///< Problem::headTiles
};
/// The heads that `after` makes of the matmuls of `products`, or why a tile of columns is not enough for
/// them. `after` has the inputs of `products`, then its results; its outputs are outputs of `kernel`.
std::variant<std::unique_ptr<TileHeads>, std::string> tileHeads(const Region &products, const Region &after,
                                                                const Region &kernel, const Problem &problem,
                                                                const KernelContext &context);
/// KernelContext::sumsSquares: how many sums a row of so many columns has.
Dim squaresOfRow(const Dim &columns);
/// Whether the rows are as many as are normalised by gemm_swap_ab. Of fewer, or more, a kernel for the norm
/// takes less. Measured: benchmarks/notes-launch.md.
bool hasNormedRows(const Problem &problem);
/// Why gemm_swap_ab does not compute A or heads as well, for so many rows as the problem has; nothing if it
/// does.
std::optional<std::string> swapABRefusal(const Problem &problem, const TargetInfo &target);
/// The kernel that does.
KernelDraft emitSwapAB(const Region &region, const KernelContext &context, const Problem &problem,
                       const TileHeads *heads);

} // namespace fusion::matmul
