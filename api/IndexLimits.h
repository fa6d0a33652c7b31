// Which inputs are indices of a table, such as token ids, and how long the table is.
#pragma once

#include "ir/base/BindSymbols.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <span>
#include <string>
#include <vector>

namespace fusion {

struct IndexLimit {
  std::string input;
  /// Indices are from -size to size - 1. Of several sizes each is that of one entry in the input's last dim.
  std::vector<Dim> sizes;
  friend bool operator==(const IndexLimit &, const IndexLimit &) = default;
};

/// Of the inputs that nn.gather, nn.gather_elements, nn.gather_nd and nn.scatter_nd take their indices from:
/// as they are, through casts to at least 32 bits, and, where the last dim is no tuple, through views that
/// leave none out.
std::vector<IndexLimit> indexLimits(mlir::func::FuncOp function);

/// An error that names the input, the first index out of range and the range. Not looked into: tensors on a
/// device, and inputs that do not fit `ports`, on which the sizes depend. An index that the graph computes,
/// or that lies on a device, reads the nearest valid element if it is out of range, and writes nothing.
Status checkIndices(const std::vector<IndexLimit> &limits, std::span<const PortShape> ports,
                    const NamedTensors &inputs);

} // namespace fusion
