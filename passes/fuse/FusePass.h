// The fuse phase as passes: one for all families, and one for each family alone.
#pragma once

#include "passes/fuse/Fuse.h"

namespace fusion {

using OracleFactory = std::function<std::unique_ptr<ScheduleOracle>()>;

/// Fuses every function of a module with the built-in patterns.
std::unique_ptr<mlir::Pass> createFusePass(FuseOptions options, OracleFactory oracle);

/// `--fuse-<family>` for every built-in family, such as `--fuse-add-norm`.
void registerFamilyPasses(OracleFactory oracle);

} // namespace fusion
