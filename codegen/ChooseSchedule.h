// Which schedule computes a region of a function, and how the region's values lie in the function's memory.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

/// How the inputs of a region lie in memory: `views` covers the function around it.
llvm::SmallVector<View> inputViews(const Region &region, const Views &views);

/// Where its outputs go.
llvm::SmallVector<View> outputViews(const Region &region, const Views &views);

/// What the schedule plans for the region, or why it refuses. A plan that does not keep
/// KernelContext::batchInvariant, where the context demands it, is refused too.
Result<SchedulePlan> planWith(const Schedule &schedule, const Region &region, const KernelContext &context);

/// The first schedule that takes the region, and its plan. The error has the reasons of those that concern it.
Result<std::pair<const Schedule *, SchedulePlan>> firstSchedule(const Region &region,
                                                                const KernelContext &context);

/// Of the schedule that a group names, else of the first one that takes the region. The error names the op.
Result<SchedulePlan> chooseSchedule(const Region &region, const KernelContext &context);

/// `nn.add at model.layers.0`
std::string describeOp(mlir::Operation *op);

} // namespace fusion
