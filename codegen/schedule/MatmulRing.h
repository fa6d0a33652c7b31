// What the kernels share whose main loop is gemm_ring.cuh, for matmuls and for products by experts' matrices.
#pragma once

#include "codegen/schedule/MatmulSource.h"

namespace fusion::matmul {

/// Of a tile in shared memory: rows of C.
constexpr int64_t ringRows = 128;
constexpr uint32_t ringThreads = 384;
/// Its elements along k: 128 bytes.
int64_t ringDepth(const Problem &problem);
/// Whether bytes are multiplied as they are; and whether their scales differ along k, from step to step at
/// most.
bool ringBytes(const Problem &problem);
bool scalesSteps(const Problem &problem);
/// Why warpgroups do not multiply these bytes, whatever their number and scales.
std::optional<std::string> byteRefusal(const Problem &problem);
/// Whether what tensor cores sum up of f8 is added in f32 now and then. They keep 14 bits of a sum: 4096
/// products are off by less than the rounding to bf16, but by more than that to f16.
bool addsExactly(const Problem &problem);
/// Elements of the 16 bytes that TMA counts in.
int64_t ringVector(const Problem &problem);

/// Why tensor cores do not multiply these types out of shared memory, or TMA does not read B; nothing if they
/// do. A is for the caller to look at.
std::optional<std::string> typeRefusal(const Problem &problem);
/// Why warpgroups do not multiply them.
std::optional<std::string> ringRefusal(const Problem &problem, const TargetInfo &target);

/// Widths of a tile, of each accumulator, that the template takes, the widest first; and for which an
/// epilogue that holds much has registers.
llvm::SmallVector<int64_t> ringWidths(const Region &region, const Problem &problem);
/// Steps along k in the ring, if `reserved` bytes of shared memory are for something else.
int64_t ringStages(const Problem &problem, const TargetInfo &target, int64_t width, int64_t reserved);

/// Members of Config, and what the epilogue takes.
void setTiles(GemmSource &source, const Problem &problem, int64_t width, int64_t stages);
void setRing(GemmSource &source, const Problem &problem, int64_t width, int64_t stages);
Sums ringSums(const Problem &problem);
/// B of one of the matmuls.
TensorMapArgument mapOfB(const Problem &problem, const Matmul &matmul, int64_t width);
/// What the launch needs, beside what multiplies.
void finishRing(KernelDraft &draft, const Problem &problem, int64_t width, int64_t stages,
                Feature multiplier);

// Of kernels whose blocks take one tile of a matmul after the other (tma_tiles.cuh).

/// Why rows of A are not read by TMA, or which matrix is whose; nothing if they are.
std::optional<std::string> rowsRefusal(const Problem &problem);
/// One stride for each of the leading dims of a batch: of one index that runs over all.
std::optional<Dim> batchStride(const Problem &problem, const Operand &operand);
/// The cheapest of these widths, over numbers of rows that the kernel is for.
int64_t chooseWidth(llvm::ArrayRef<int64_t> widths, const Problem &problem, const TargetInfo &target);
/// The kernel, in tiles of that width.
KernelDraft finishTiles(GemmSource &source, const Problem &problem, const TargetInfo &target, int64_t width,
                        int64_t stages, uint32_t threads, Feature multiplier);

} // namespace fusion::matmul
