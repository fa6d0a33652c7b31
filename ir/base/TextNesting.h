// MLIR's parser and printer recurse as deep as a text is nested.
#pragma once

#include "ir/base/Result.h"

#include <string_view>

namespace fusion {

/// Whether MLIR may be given this text: brackets and aliases of aliases at most 256 deep, no bytecode, whose
/// reader expects no damage, and no affine expressions, which graphs and patterns do not have and whose
/// operators nest without brackets.
Status checkNesting(std::string_view text);

} // namespace fusion
