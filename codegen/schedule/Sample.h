// nn.sample: codegen/device/sampling.cuh and sampling_parts.cuh.
#pragma once

#include "codegen/Schedule.h"

namespace fusion {

/// nn.sample by one kernel; the kernels of a row's parts, up to some number of rows, and one kernel for more.
KernelDraft emitSample(const Region &region, const KernelContext &context);
std::vector<PlannedAlternative> alternativesOfSample(const Region &region, const KernelContext &context);

} // namespace fusion
