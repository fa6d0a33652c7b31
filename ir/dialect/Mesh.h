// The mesh of ranks on which a function runs: a size for each axis, such as `nn.mesh = {tp = 4 : i64}`. Every
// nn.all_reduce names in `group` the axis over whose ranks it sums.
#pragma once

#include "ir/base/Result.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fusion::nn {

/// On one rank's function; a whole graph's has none.
inline constexpr llvm::StringLiteral meshAttr = "nn.mesh";
/// The axis of tensor parallelism: `--tp`, the shard pass and com.microsoft collectives mean it.
inline constexpr llvm::StringLiteral tensorAxis = "tp";

struct MeshAxis {
  std::string name;
  int64_t ranks = 1;
};

/// The axes of the function's mesh, by name; none on a whole graph's function.
llvm::SmallVector<MeshAxis> meshOf(mlir::func::FuncOp function);
/// How many ranks there are in all; nothing on a whole graph's function.
std::optional<int64_t> ranksOf(mlir::func::FuncOp function);
void setMesh(mlir::func::FuncOp function, const MeshAxis &axis);

/// Says in one line what cannot be run yet (BadInput): a mesh of several axes, a sum over another axis than
/// the mesh's. Without a mesh, or with one rank, every sum is its only addend, whatever its axis.
Status checkSums(mlir::func::FuncOp function);

/// For the dialect's verifier: an error at `op` unless `attribute` is a dictionary of positive sizes.
llvm::LogicalResult verifyMesh(mlir::Operation *op, mlir::Attribute attribute);

} // namespace fusion::nn
