// A norm, the matmuls of its result, and what is made of heads of theirs, as three regions.
#pragma once

#include "codegen/schedule/MatmulProblem.h"

namespace fusion::matmul {

/// The parts of a region; the norm or the heads may have no ops.
struct ChainParts {
  Region norm, products, heads; ///< inputs: the region's, then what they read of the parts before them
  mlir::Value rows;             ///< the norm's result, if there is one: the first operand of all matmuls
};

/// The parts of a region, or why it has none.
std::variant<ChainParts, std::string> chainParts(const Region &region, const KernelContext &context);

} // namespace fusion::matmul
