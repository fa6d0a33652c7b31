// What the attention kernels that multiply tiles of rows on tensor cores ask of their operands.
#pragma once

#include "codegen/schedule/AttentionProblem.h"

namespace fusion::attention {

/// The reason why tensor cores cannot be used for tiles of rows, or nothing.
std::optional<std::string> tensorCoreRefusal(const Problem &problem);

/// Whether all rows of an operand can be read `length` elements at a time.
bool readsVectors(const View &view, int64_t length = 8);
/// Whether TMA copies tiles of an operand whose rows can be read 16 bytes at a time.
bool hasTensorMap(const View &view);
/// Tiles of 64 columns of an operand [entry, head, row, column] with its dims in `order`. A dim of one
/// element may have any stride.
TensorMapArgument mapOf(const View &view, mlir::Value operand, llvm::ArrayRef<unsigned> order,
                        std::vector<uint32_t> box);

/// Scores with a cap or a mask are finished one by one. Else they stay q·k, which the exponent's factor
/// scales.
bool isScaleOnly(const Problem &problem);

/// The kernels of heads larger than `largestHead`, by the number of pairs: attention_latent.cuh of
/// codegen/device, and attention_latent_merge.cuh where several clusters have the keys of one.
KernelDraft emitLatent(const Problem &problem); ///< one cluster for each pair
std::vector<PlannedAlternative> latentAlternatives(const Region &region, const KernelContext &context);
/// The reason why they do not take them, or nothing.
std::optional<std::string> latentRefusal(const Problem &problem);

} // namespace fusion::attention
