// Tokens beside those that rotate, such as a class token before the patches of a picture.
#pragma once

#include "passes/raise/Raise.h"

namespace fusion::raise {

// Pattern: concat(slice(x), rope(slice(x)), ..) of tokens -> rope(x), where the others have cos 1 and sin 0
void addUnrotatedTokens(mlir::RewritePatternSet &patterns, ShapeTable &shapes);

} // namespace fusion::raise
