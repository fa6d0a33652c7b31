// The choice of experts: what a region of it says, and its kernels.
#pragma once

#include "codegen/body/KernelSource.h"

namespace fusion {

struct Routes {
  nn::SoftmaxOp softmax;      ///< of all scores, or null
  nn::AddOp shift;            ///< of the scores and `bias`, where the choice is by it, or null
  mlir::Value bias;           ///< of each score
  nn::LimitGroupsOp limit;    ///< of the scores that are chosen from, or null
  bool limitsWeights = false; ///< weights are of its result
  nn::TopKOp topK;
  nn::GatherElementsOp taken;
  nn::SoftmaxOp weightSoftmax; ///< of those taken, or null
  nn::ReduceOp sum;            ///< of those taken, or null, with
  nn::AddOp least;             ///< of a number to the sum, or null, and
  nn::DivOp quotient;
  llvm::SmallVector<mlir::Operation *> before, after; ///< scalar ops on the scores, on the weights
  mlir::Value scores, weight;                         ///< in front of `before`; the result beside the choice
  /// Where the scores are computed in the region: what computes them, and the others, which read them last of
  /// all inputs.
  std::optional<Region> products;
  Region rest;
};

/// The choice that the region makes, or why it is none.
std::variant<Routes, std::string> analyseRoutes(const Region &region, const KernelContext &context);

/// Writes Body, a functor of the kernel, and its Config.
class RouterWriter {
public:
  RouterWriter(const Region &region, const KernelContext &context, const Routes &routes,
               body::KernelSource &source)
      : region(region), context(context), routes(routes), source(source) {}

  /// `inMemory`: the scores are; else the template hands them to Body::score.
  void write(bool inMemory);
  Dim rows() const;

private:
  void writeElement();
  void writeScore();
  void writeChoice();
  void writeDivisor();
  scalar::Value applied(scalar::Graph &graph, llvm::ArrayRef<mlir::Operation *> ops, scalar::Value value);
  void writePut(const std::string &signature, mlir::Value output,
                llvm::function_ref<scalar::Value(scalar::Graph &)> valueOf);
  DimShape rowShape() const;

  const Region &region;
  const KernelContext &context;
  const Routes &routes;
  body::KernelSource &source;
};

namespace router {
/// Why no warp keeps the best groups of a row; nothing where one does.
std::optional<std::string> limitRefusal(nn::LimitGroupsOp limit);
/// What limit_groups asks of Config and Body.
void configureLimit(nn::LimitGroupsOp limit, body::KernelSource &source);
/// The kernel for scores in memory.
KernelDraft emitAlone(const Region &region, const KernelContext &context);
/// The kernel that multiplies too, for the rows that it is for; none where the target or the operands do not
/// allow it.
KernelDraft emitWithProduct(const Region &region, const KernelContext &context);
std::optional<SizeRange> rowsWithProduct(const Region &region, const KernelContext &context);
} // namespace router

} // namespace fusion
