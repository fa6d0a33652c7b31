// Translation validation: what the rewrites made against what they replaced, kernels against the bodies of groups.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "passes/RewriteLog.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <functional>
#include <string>

namespace fusion {

/// Changes a plan before it runs: how a test puts a wrong kernel in the place of a right one.
using PlanEdit = std::function<void(ProgramPlan &)>;

/// For every fusion.group of `function`: its emitted kernel, on the GPU if there is one and emulated if not,
/// against its body on the reference, on fresh random inputs of the group's own types; symbolic dims get small
/// values, and so do large dims of matrices where the body means the same at any size. Equal groups, as the layers of a model have, are checked once. The first mismatch is an error of kind
/// AnswerIsNo that names the fusion, the location, the element and both values. Prints progress.
Status verifyGroups(mlir::func::FuncOp function, const std::string &target, const PlanEdit &edit = {});

/// For every rewrite of `log`: the ops replaced against the ops made, both on the reference, on fresh random inputs of
/// ordinary, large and tiny values. What keeps its rounding points must agree but for f32 noise; a raise to an op that
/// rounds less often must agree within the type's tolerance, with the ops it replaced or with their exact meaning. The
/// first mismatch is an error of kind AnswerIsNo that names the rewrite, the location, the element and both values.
/// Prints progress.
Status verifyRewrites(const RewriteLog &log);

} // namespace fusion
