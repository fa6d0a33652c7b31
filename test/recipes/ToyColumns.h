// A schedule outside of the project.
#pragma once

#include "codegen/Schedule.h"

namespace toy {
/// Sums over the first dim of a matrix, a thread a column. Its template is toy_columns.cuh.
const fusion::Schedule &columnsSchedule();
} // namespace toy
