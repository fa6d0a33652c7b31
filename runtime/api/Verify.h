// Translation validation of groups: kernel against body.
#pragma once

#include "ir/base/Result.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace fusion {

/// For every fusion.group of `function`: its emitted kernel, on the GPU if there is one and emulated if not,
/// against its body on the reference, on fresh random inputs of the group's own types; symbolic dims get small
/// values. The first mismatch is an error of kind AnswerIsNo that names the fusion, the location, the element and
/// both values. Prints progress.
Status verifyGroups(mlir::func::FuncOp function, const std::string &target);

} // namespace fusion
