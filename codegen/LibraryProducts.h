// A region of matrix products of many rows, as calls of a library and the regions of what is behind them.
#pragma once

#include "codegen/RestOfRegion.h"

namespace fusion {

/// An operand of a library's product: lines of elements side by side.
struct LibraryOperand {
  unsigned input = 0;   ///< of the region
  Dim offset = 0;       ///< all in elements
  Dim line = 0;         ///< from one line to the next
  Dim step = 0;         ///< from one matrix of the batch to the next
  bool columns = false; ///< the lines are columns, not rows
};

struct LibraryProduct {
  nn::MatmulOp op;
  LibraryOperand a, b;
  Dim m = 1, n = 1, k = 1, count = 1;
  std::optional<unsigned> output; ///< of the region, which the library writes as it is
};

struct LibraryProducts {
  std::vector<LibraryProduct> calls;
  std::vector<Rest> rests;
  SizeRange rows; ///< of all products, and how many there must be
};

/// The reason why it cannot be done so, or not sooner than in a kernel: few rows, types or layouts that the library does not
/// take, no schedule for the rest.
std::variant<LibraryProducts, std::string> splitProducts(const Region &region, const KernelContext &context);

} // namespace fusion
