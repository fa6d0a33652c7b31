// A program plan with every size worked out for one set of input shapes.
#pragma once

#include "codegen/plan/ProgramPlan.h"
#include "runtime/MemoryPlan.h"
#include "runtime/ShapeIndex.h"
#include "runtime/collective/Communicator.h"

#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace fusion {

struct ShapePlan {
  struct Argument {
    using Kind = KernelPlan::Parameter::Kind;
    Kind kind = Kind::Scalar;
    uint32_t place = 0;  ///< of a pointer, a tensor map or workspace: into `placeBytes`
    uint64_t value = 0;  ///< the byte offset in it, the workspace's bytes, the number itself
    Shape extents = {};  ///< of a tensor map: shape, then strides
    bool usesPlace() const { return kind != Kind::Scalar && kind != Kind::Exchange; }
    friend bool operator==(const Argument &, const Argument &) = default;
  };
  struct Launch {
    uint32_t source = 0; ///< the number of the launch in the plan
    const KernelLaunch *launch = nullptr;
    const Alternative *alternative = nullptr; ///< that it is of
    uint32_t kernel = 0;
    std::array<uint32_t, 3> grid = {1, 1, 1};
    std::vector<Argument> arguments;
    bool overlapsPrevious = false; ///< both this kernel and the one before it use PDL
    bool runsBesidePrevious = false; ///< it writes while the launch before it still reads and writes
    bool clearsWorkspace = false;  ///< some of its workspace is filled with zeros first
  };
  /// What became of a launch of the program.
  enum class State : uint8_t {
    Launched,
    Empty,     ///< nothing to do: its grid is empty
    NotChosen, ///< another alternative is taken, or none because a size is below 1
  };
  static constexpr uint32_t none = UINT32_MAX;
  std::vector<int64_t> symbols; ///< the values that this is for, by the planner's numbers
  /// Of each buffer, by its id, and then of the workspace of each launch.
  std::vector<size_t> placeBytes;
  std::vector<size_t> arenaOffsets; ///< for each place; meaningful for those in the arena
  std::vector<size_t>
      askedBytes; ///< for each place in the arena that is used, what memory was asked for; else 0
  std::vector<size_t> roomBytes;    ///< for each place, to what size it may grow where it lies
  size_t arenaBytes = 0;
  size_t keptZeroBytes = 0;         ///< of the workspace that is kept zero, which all launches share
  size_t roundBytes = 0; ///< that the launches need of Exchange::roundBytes; 0: they exchange nothing
  std::vector<Shape> outputShapes; ///< for each output port
  std::vector<size_t> outputOffsets;
  std::vector<Shape> inputStrides, outputStrides; ///< for each port; empty: contiguous
  std::vector<uint32_t> chosen; ///< for each of the program's steps, the alternative; or `none`
  std::vector<Launch> launches;                   ///< those of state Launched
  /// Launches [first, end) of those above are made `count` times, one round after the other.
  struct Repetition {
    uint32_t first = 0, end = 0;
    int64_t count = 0;
  };
  std::vector<Repetition> repetitions;            ///< in order, one inside of another behind that
  std::vector<State> states;                      ///< for each of the program's launches …
  std::vector<uint32_t> positions;                ///< … and where in `launches` it is
};

/// Which of the candidates, of which there is at least one, is taken in a step that is measured. The same for
/// sizes of the same classes.
using MeasuredChoice = std::function<uint32_t(size_t step, std::span<const uint32_t> candidates)>;
/// Sizes up to a power of two; -1: nothing to compute.
inline int sizeClass(int64_t size) { return size < 1 ? -1 : std::bit_width(static_cast<uint64_t>(size - 1)); }

/// Works out shapes of one plan, again and again: a decode loop has new ones at every step. Each of the
/// plan's expressions is evaluated once for a set of shapes however often it occurs, and memory is laid out
/// anew only when a temporary's size has changed. Not thread-safe; the plan must outlive it.
class ShapePlanner {
public:
  explicit ShapePlanner(const ProgramPlan &plan);
  /// As planShapes().
  Result<ShapePlan> plan(const SymbolValues &symbols, const Communicator *communicator = nullptr,
                         const MeasuredChoice &measured = {});

  /// The same with values by their numbers in sizes(), DimTable::unknown where there is none.
  Result<ShapePlan> plan(std::span<const int64_t> symbols, const Communicator *communicator,
                         const MeasuredChoice &measured = {});
  const ShapeIndex &sizes() const { return index; }
  SymbolValues named(std::span<const int64_t> symbols) const;
  /// How many of the plan's launches have a size in which a symbol occurs that has another value in
  /// `symbols`.
  size_t launchesThatDepend(const ShapePlan &shapes, std::span<const int64_t> symbols);
  /// Makes `shapes`, one of this planner's, those for other values of the symbols: only what depends on them
  /// is evaluated, temporaries stay where they are as long as they fit there, and `changed` becomes the
  /// indices into `launches` of those with another grid or other arguments. False, and nothing is done, where
  /// other launches are taken or where plan() may have an error to tell.
  bool update(ShapePlan &shapes, std::span<const int64_t> symbols, std::vector<uint32_t> &changed);

  /// What a launch moves and computes, for reports: an expression that does not evaluate counts as nothing.
  struct Traffic {
    double bytes = 0, flops = 0;
  };
  Traffic traffic(const ShapePlan &shapes, size_t launch);
  /// Since the start: expressions that were evaluated.
  uint64_t evaluations() const { return evaluated; }

private:
  using Size = ShapeIndex::Size;
  class Planning;
  class Updating;
  /// For the values in hand. Nothing where Dim::evaluate() has an error to tell.
  std::optional<int64_t> value(const Size &size);
  void begin(std::span<const int64_t> symbols);
  bool changes(const Size &size, const ShapePlan &shapes) const;
  /// Whether another alternative of the step is taken than for `shapes`, or may be.
  bool choiceChanges(uint32_t step, const ShapePlan &shapes);
  /// Whether other candidates than for `shapes`, or others of their sizes' classes, are to be compared.
  bool measurementChanges(uint32_t step, const ShapePlan &shapes, bool hasChoice);
  /// Lays out the temporaries that the launches use, askedBytes for each.
  void placeTemporaries(ShapePlan &shapes);
  /// Whose memory each place uses: its own, or that of a temporary which the launch that writes it reads last
  /// and may write over. The lifetimes become those of the memory.
  std::vector<uint32_t> shareMemory(const ShapePlan &shapes, std::vector<Lifetime> &lifetimes) const;

  const ProgramPlan &program;
  ShapeIndex index;
  std::vector<int64_t> symbolValues; ///< in hand
  std::vector<int64_t> values;       ///< by number in the table, for the values in hand …
  std::vector<uint64_t> knownSince;  ///< … if they were evaluated for these
  uint64_t turn = 0;
  uint64_t evaluated = 0;
  std::vector<Lifetime> lastLifetimes;
  MemoryPlan lastMemory;
};

/// Errors name the kernel or buffer: a symbol without a value, a negative or too large size, a grid beyond
/// what the hardware takes, an offset outside its buffer, more positions than a cache holds, a collective
/// without `communicator`. Without `measured` the first candidate is taken.
Result<ShapePlan> planShapes(const ProgramPlan &plan, const SymbolValues &symbols,
                             const Communicator *communicator = nullptr, const MeasuredChoice &measured = {});

} // namespace fusion
