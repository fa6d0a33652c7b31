// nn.expert_matmul, with the scalar ops after it and, where the experts' rows are weighted, the sum over the
// slots of a row.
#pragma once

#include "codegen/schedule/MatmulProblem.h"

namespace fusion::experts {

/// A region whose products are added up over the slots, in two.
struct Sum {
  nn::ReduceOp op;
  Region products; ///< all in front of the sum, whose operand it makes
  Region rest;     ///< the sum and the scalar ops after it; reads that operand as its last input
};

/// The sum over slots of the region, none if there is no nn.reduce, or the reason why it is another one.
std::variant<std::optional<Sum>, std::string> findSum(const Region &region, const KernelContext &context);

/// Why the ops after the sum cannot be written, or nothing.
std::optional<std::string> refusesRest(const Sum &sum, const KernelContext &context);

/// Whether the products of many rows are for warpgroups: first emitPlan(), then emitSm90().
bool takesSm90(const matmul::Problem &problem, const TargetInfo &target);
/// Puts the rows of each expert side by side.
KernelDraft emitPlan(const Region &region, const KernelContext &context);
KernelDraft emitSm90(const Region &region, const KernelContext &context);

/// The sum alone, of a tensor in memory.
KernelDraft emitSum(const Sum &sum, const KernelContext &context);
/// The sum as a product that is there already.
matmul::Problem sumProblem(const Sum &sum, const KernelContext &context);

/// Whether each of the few rows reads its expert's matrix by itself; where the sum over the slots is in the
/// same kernel, up to mostSumTokens.
constexpr int64_t mostSumTokens = 4;
bool takesGemv(const matmul::Problem &problem);
bool takesGemvSum(const matmul::Problem &problem);
KernelDraft emitGemv(const Region &region, const KernelContext &context, const matmul::Problem &problem);
/// All of `region`, of which `problem` is the products.
KernelDraft emitGemvSum(const Sum &sum, const Region &region, const KernelContext &context,
                        const matmul::Problem &problem);

} // namespace fusion::experts
