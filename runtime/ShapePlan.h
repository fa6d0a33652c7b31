// A program plan with every size worked out for one set of input shapes.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "runtime/MemoryPlan.h"
#include "runtime/collective/Communicator.h"

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace fusion {

struct ShapePlan {
  struct Argument {
    enum class Kind : uint8_t { Number, Buffer, Exchange } kind = Kind::Number;
    BufferId buffer = 0;
    uint64_t value = 0; ///< the byte offset of a buffer argument, the number itself
  };
  struct Launch {
    uint32_t source = 0; ///< index into ProgramPlan::launches
    uint32_t kernel = 0;
    std::array<uint32_t, 3> grid = {1, 1, 1};
    std::vector<Argument> arguments;
    bool overlapsPrevious = false; ///< both this kernel and the one before it use PDL
  };
  std::vector<size_t> bufferBytes;
  std::vector<size_t> arenaOffsets; ///< for each buffer; meaningful for temporaries
  size_t arenaBytes = 0;
  size_t roundBytes = 0; ///< that the launches need of Exchange::roundBytes; 0: they exchange nothing
  std::vector<Shape> outputShapes; ///< for each output port
  std::vector<size_t> outputOffsets;
  std::vector<Shape> inputStrides, outputStrides; ///< for each port; empty: contiguous
  /// Those with an empty grid, for other sizes or of forms of a collective that were not chosen are left out.
  std::vector<Launch> launches;
  std::vector<double> bytesMoved, flops; ///< for each of `launches`
};

/// Works out shapes of one plan, again and again: a decode loop has new ones at every step. Each of the plan's expressions
/// is evaluated once for a set of shapes however often it occurs, and memory is laid out anew only when a temporary's size
/// has changed. Not thread-safe; the plan must outlive it.
class ShapePlanner {
public:
  explicit ShapePlanner(const ProgramPlan &plan);
  /// As planShapes().
  Result<ShapePlan> plan(const SymbolValues &symbols, const Communicator *communicator = nullptr);

private:
  class Planning;
  void index(const Dim &dim, std::map<Dim, uint32_t> &known);
  const ProgramPlan &program;
  std::unordered_map<const Dim *, uint32_t> places; ///< of the plan's Dims that depend on symbols: equal ones share one
  std::vector<std::optional<int64_t>> values;       ///< by place, for the shapes in hand
  std::vector<Lifetime> lastLifetimes;
  MemoryPlan lastMemory;
};

/// Errors name the kernel or buffer: a symbol without a value, a negative or too large size, a grid beyond
/// what the hardware takes, an offset outside its buffer, more positions than a cache holds, a collective without `communicator`.
Result<ShapePlan> planShapes(const ProgramPlan &plan, const SymbolValues &symbols,
                             const Communicator *communicator = nullptr);

} // namespace fusion
