// Translation validation: what the rewrites made against what they replaced, kernels against the bodies of
// groups.
#pragma once

#include "codegen/BuildPlan.h"
#include "passes/RewriteLog.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <functional>
#include <string>

namespace fusion {

/// Changes a plan before it runs: how a test puts a wrong kernel in the place of a right one.
using PlanEdit = std::function<void(ProgramPlan &)>;

/// For every fusion.group of `function` and every op that is a kernel of its own: the emitted kernel, on the
/// GPU if there is one and emulated if not, against the body or op on the reference, on fresh random inputs
/// of its own types; symbolic dims get small values, and so do large dims of matrices where the body means
/// the same at any size. Equal ones, as the layers of a model have, are checked once. Sums over ranks run on
/// all ranks, with other addends on each; also together with the kernel that makes the addend, where that
/// sends it. The first mismatch is an error of kind AnswerIsNo that names the fusion or op, the location, the
/// element and both values. Prints progress; says on stderr what it left out.
Status verifyKernels(mlir::func::FuncOp function, const PlanOptions &options, const PlanEdit &edit = {});

/// For every rewrite of `log`: the ops replaced against the ops made, both on the reference, on fresh random
/// inputs of ordinary, large and tiny values. What keeps its rounding points must agree but for f32 noise; a
/// raise to an op that rounds less often must agree within the type's tolerance, with the ops it replaced or
/// with their exact meaning. The first mismatch is an error of kind AnswerIsNo that names the rewrite, the
/// location, the element and both values. Prints progress.
Status verifyRewrites(const RewriteLog &log);

} // namespace fusion
