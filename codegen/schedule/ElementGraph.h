// Elements of a region's values as expressions: what an element depends on is computed again through index
// maps, down to loads of the region's inputs.
#pragma once

#include "codegen/body/KernelSource.h"

#include <map>

namespace fusion {

/// One I64 per dim.
using ElementIndex = llvm::SmallVector<scalar::Value>;

/// The elements of a constant as values of the graph; one for a splat.
std::vector<scalar::Value> constantValues(scalar::Graph &graph, nn::ConstantOp op);
/// The one value of an nn.constant or nn.dim_constant of one element.
scalar::Value constantValue(scalar::Graph &graph, body::Scope &source, mlir::Operation *op);

class ElementGraph {
public:
  ElementGraph(const Region &region, const KernelContext &context, scalar::Graph &graph, body::Scope &source)
      : region(region), context(context), graph(graph), source(source) {}

  /// The element at `index`. Where `guard` (a bool; none: everywhere) is false, nothing is read and the value
  /// means nothing.
  scalar::Value value(mlir::Value value, const ElementIndex &index, scalar::Value guard = {});

  /// Why an op has no such expression, or nothing.
  static std::optional<std::string> refuses(mlir::Operation *op, const KernelContext &context);

private:
  scalar::Value compute(mlir::Operation *op, const ElementIndex &index, scalar::Value guard);
  scalar::Value constant(mlir::Operation *op, const ElementIndex &index);
  scalar::Value iota(mlir::Operation *op, const ElementIndex &index, scalar::Value guard);
  ElementIndex throughReshape(mlir::Operation *op, const ElementIndex &index);
  ElementIndex throughSlice(mlir::Operation *op, const ElementIndex &index);
  scalar::Value concat(nn::ConcatOp op, const ElementIndex &index, scalar::Value guard);
  scalar::Value cacheWrite(nn::CacheWriteOp op, const ElementIndex &index, scalar::Value guard);
  scalar::Value pad(nn::PadOp op, const ElementIndex &index, scalar::Value guard);
  scalar::Value trilu(nn::TriluOp op, const ElementIndex &index, scalar::Value guard);
  scalar::Value gather(nn::GatherOp op, const ElementIndex &index, scalar::Value guard);
  scalar::Value gatherElements(nn::GatherElementsOp op, const ElementIndex &index, scalar::Value guard);
  scalar::Value gatherNd(nn::GatherNdOp op, const ElementIndex &index, scalar::Value guard);
  scalar::Value rope(nn::RopeOp op, const ElementIndex &index, scalar::Value guard);
  scalar::Value rotated(nn::RopeOp op, const ElementIndex &index, scalar::Value guard);

  /// The operand's element under numpy broadcasting of its shape to a result indexed by `index`.
  scalar::Value broadcast(mlir::Value operand, const ElementIndex &index, scalar::Value guard);
  /// A scale or zero point of a quantisation.
  scalar::Value scale(mlir::Operation *op, unsigned operand, const ElementIndex &index, scalar::Value guard);
  /// A place along a dim of size `count` from an integer element.
  scalar::Value place(mlir::Value indices, const ElementIndex &index, const Dim &count, scalar::Value guard);
  scalar::Value size(const Dim &dim) { return source.size(graph, dim); }

  const Region &region;
  const KernelContext &context;
  scalar::Graph &graph;
  body::Scope &source;
  using Key = std::pair<const void *, std::vector<scalar::Value>>;
  std::map<Key, scalar::Value> known;
  llvm::DenseMap<mlir::Operation *, std::string> tables;
};

} // namespace fusion
