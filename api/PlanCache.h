// Compiled programs on disk: a second compile of the same graph finds its plan, and the report that goes with
// it.
#pragma once

#include "api/Fusion.h"
#include "codegen/plan/ProgramPlan.h"
#include "runtime/KernelCache.h"

#include <optional>
#include <string>

namespace fusion {

/// Names everything that a plan depends on: the imported graph with its locations and where its weights lie
/// (not their bytes), the options, the contents of pattern files, the GPU whose measurements count (if
/// `mayMeasure`), and this very build of the library. Empty if something of that cannot be read: then nothing
/// is cached.
std::string planKey(const Graph &graph, const CompileOptions &options, bool mayMeasure);

/// The plan stored under `key`. An entry that is not a plan counts as absent.
std::optional<ProgramPlan> cachedPlan(KernelCache &cache, const std::string &key);
void storePlan(KernelCache &cache, const std::string &key, const ProgramPlan &plan);

} // namespace fusion
