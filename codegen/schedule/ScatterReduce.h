// Sums and extremes of scattered updates: codegen/device/scatter.cuh.
#pragma once

#include "codegen/Schedule.h"
#include "ir/dialect/Scatter.h"

namespace fusion {

KernelDraft emitScatterReduce(nn::ScatterReduceOp op, const Region &region, const KernelContext &context);

} // namespace fusion
