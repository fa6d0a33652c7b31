// Memory of a GPU that somebody else filled, on the host.
#pragma once

#include "ir/base/Result.h"

#include <cstddef>

namespace fusion::cuda {

/// Copies `bytes` bytes at `source` on that GPU to the host, after everything that was queued on it before.
/// Errors: no driver or GPU, or no such memory (Environment).
Status readMemory(int ordinal, void *target, const void *source, size_t bytes);

} // namespace fusion::cuda
