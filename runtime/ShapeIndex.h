// The sizes of a program plan as numbered expressions, in the plan's order, and what depends on which symbol. Internal to
// the shape planner.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "ir/base/DimTable.h"

#include <utility>

namespace fusion {

struct ShapeIndex {
  explicit ShapeIndex(const ProgramPlan &plan);

  struct Size {
    static constexpr uint32_t isConstant = UINT32_MAX;
    const Dim *dim = nullptr;
    uint32_t number = isConstant; ///< in `table`
    int64_t constant = 0;
  };
  struct Launch {
    Size grid[3];
    std::optional<Size> when, messageBytes, roundBytes;
    std::vector<Size> arguments; ///< byte offsets of buffers, numbers
    Size bytesRead, bytesWritten, flops;
  };
  struct Port {
    std::vector<Size> shape, strides, room; ///< `room`: the buffer's shape, of ports with strides
    Size byteOffset;
  };
  /// What has a size in which a symbol occurs; indices into the plan's lists, ascending.
  struct Dependents {
    std::vector<uint32_t> buffers, launches, inputs, outputs;
  };

  DimTable table;
  std::vector<std::vector<Size>> buffers;
  std::vector<Launch> launches;
  std::vector<Port> inputs, outputs;
  std::vector<std::pair<Size, Size>> equalities;
  uint32_t rank; ///< the number of the rank's symbol
  std::vector<Dependents> bySymbol;

private:
  Size size(const Dim &dim);
  std::vector<Size> sizes(const DimShape &dims);
  Port port(const ProgramPlan &plan, const PortPlan &port);
  void depends(const Size &size, std::vector<uint32_t> Dependents::*list, size_t index);
  void findDependents(const ProgramPlan &plan);
};

} // namespace fusion
