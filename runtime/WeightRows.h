// Which bytes of a weight's contents one rank uploads.
#pragma once

#include "codegen/plan/ProgramPlan.h"

#include <vector>

namespace fusion {

/// `count` runs of `bytes` bytes, the first at `offset` of the contents, the next ones `pitch` bytes apart.
/// In memory they lie side by side.
struct WeightRows {
  size_t offset = 0, bytes = 0, pitch = 0, count = 1;
  size_t total() const { return bytes * count; }
  friend auto operator<=>(const WeightRows &, const WeightRows &) = default;
};

/// The buffer's elements in their order, for rank `rank`; of a buffer without a window one row. Errors: a
/// window that for this rank reaches outside of the contents, or starts or ends inside a byte.
Result<std::vector<WeightRows>> weightRows(const BufferPlan &buffer, int rank);

} // namespace fusion
