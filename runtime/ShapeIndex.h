// The sizes of a program plan as numbered expressions, in the plan's order, and what depends on which symbol.
// Internal to the shape planner.
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
  struct Argument {
    Size value; ///< the byte offset of a buffer, the number itself, the bytes of workspace
    std::vector<Size> extents; ///< of a tensor map: shape, then strides
    uint32_t place = 0; ///< of a buffer or workspace
  };
  struct Launch {
    const KernelLaunch *source;
    Size grid[3];
    std::vector<Argument> arguments;
    Size bytesRead, bytesWritten, flops;
  };
  struct Alternative {
    std::vector<Size> when;
    std::optional<Size> messageBytes, roundBytes;
    uint32_t firstLaunch; ///< into `launches`; the linked one comes last
  };
  struct Step {
    std::vector<Alternative> alternatives;
    /// Where variants are measured: m, n, k and the number of matrices of a library's call, or the sizes that
    /// kernels of ours are for.
    std::vector<Size> matmul;
  };
  struct Port {
    std::vector<Size> shape, strides, room; ///< `room`: the buffer's shape, of ports with strides
    Size byteOffset;
  };
  /// What has a size in which a symbol occurs; indices into the plan's lists, ascending.
  struct Dependents {
    std::vector<uint32_t> places, steps, launches, inputs, outputs;
  };
  /// Memory that a run needs: the plan's buffers, by their ids, then the workspace of each launch.
  struct Place {
    DType type = DType::U8;
    std::vector<Size> shape;
    bool isInArena = false; ///< temporaries, and workspace unless it is kept zero
    bool isKeptZero = false;
    std::string what; ///< for errors
  };

  DimTable table;
  std::vector<Place> places;
  std::vector<Step> steps;
  std::vector<Launch> launches; ///< of all alternatives
  std::vector<Port> inputs, outputs;
  std::vector<Size> repetitions; ///< how often each
  std::vector<std::pair<Size, Size>> equalities;
  uint32_t rank; ///< the number of the rank's symbol
  std::vector<Dependents> bySymbol;

private:
  Size size(const Dim &dim);
  std::vector<Size> sizes(const DimShape &dims);
  Step step(const ProgramPlan &plan, const fusion::Step &source);
  Launch launch(const ProgramPlan &plan, const KernelLaunch &source);
  Argument argument(const ProgramPlan &plan, const KernelLaunch &source, size_t index);
  Port port(const ProgramPlan &plan, const PortPlan &port);
  void dependsOnSizes(size_t step);
  void dependsOnSizes(const Launch &launch, size_t number);
  void depends(const Size &size, std::vector<uint32_t> Dependents::*list, size_t index);
  void findDependents(const ProgramPlan &plan);
};

} // namespace fusion
