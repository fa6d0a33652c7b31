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
  /// What became of a launch of the program.
  enum class Fate : uint8_t {
    Launched,
    Empty,      ///< nothing to do: its grid is empty …
    Nothing,    ///< … or the size that it is for is below 1
    OtherSizes, ///< it is for other values of that size
    OtherForm,  ///< of a collective or of products that take another way
  };
  std::vector<int64_t> symbols; ///< the values that this is for, by the planner's numbers
  std::vector<size_t> bufferBytes;
  std::vector<size_t> arenaOffsets; ///< for each buffer; meaningful for temporaries
  std::vector<size_t> askedBytes;   ///< for each temporary that is used, what memory was asked for; else 0
  std::vector<size_t> roomBytes;    ///< for each buffer, to what size it may grow where it lies
  size_t arenaBytes = 0;
  size_t roundBytes = 0; ///< that the launches need of Exchange::roundBytes; 0: they exchange nothing
  std::vector<Shape> outputShapes; ///< for each output port
  std::vector<size_t> outputOffsets;
  std::vector<Shape> inputStrides, outputStrides; ///< for each port; empty: contiguous
  std::vector<Launch> launches;                   ///< those of fate Launched
  std::vector<Fate> fates;                        ///< for each of the program's launches …
  std::vector<uint32_t> positions;                ///< … and where in `launches` it is
};

/// Whether the library's way is taken of the products whose first launch is this one (ProgramPlan::endOfProducts). The same
/// for sizes of the same classes.
using LibraryChoice = std::function<bool(size_t begin)>;
/// Sizes up to a power of two; -1: nothing to compute.
inline int sizeClass(int64_t size) { return size < 1 ? -1 : std::bit_width(static_cast<uint64_t>(size - 1)); }

/// Works out shapes of one plan, again and again: a decode loop has new ones at every step. Each of the plan's expressions
/// is evaluated once for a set of shapes however often it occurs, and memory is laid out anew only when a temporary's size
/// has changed. Not thread-safe; the plan must outlive it.
class ShapePlanner {
public:
  explicit ShapePlanner(const ProgramPlan &plan);
  /// As planShapes().
  Result<ShapePlan> plan(const SymbolValues &symbols, const Communicator *communicator = nullptr,
                         const LibraryChoice &byLibrary = {});

  /// The same with values by their numbers in sizes(), DimTable::unknown where there is none.
  Result<ShapePlan> plan(std::span<const int64_t> symbols, const Communicator *communicator,
                         const LibraryChoice &byLibrary = {});
  const ShapeIndex &sizes() const { return index; }
  SymbolValues named(std::span<const int64_t> symbols) const;
  /// How many of the plan's launches have a size in which a symbol occurs that has another value in `symbols`.
  size_t launchesThatDepend(const ShapePlan &shapes, std::span<const int64_t> symbols);
  /// Makes `shapes`, one of this planner's, those for other values of the symbols: only what depends on them is evaluated,
  /// temporaries stay where they are as long as they fit there, and `changed` becomes the indices into `launches` of
  /// those with another grid or other arguments. False, and nothing is done, where other launches are taken or where
  /// plan() may have an error to tell.
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
  /// Whether the choice between the ways of a library's product is another than for `shapes`, or may be.
  bool choiceChanges(uint32_t launch, const ShapePlan &shapes);
  /// Lays out the temporaries that the launches use, askedBytes for each.
  void placeTemporaries(ShapePlan &shapes);
  /// Whose memory each buffer uses: its own, or that of a temporary which the launch that writes it reads last and
  /// may write over. The lifetimes become those of the memory.
  std::vector<BufferId> shareMemory(const ShapePlan &shapes, std::vector<Lifetime> &lifetimes) const;

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
/// what the hardware takes, an offset outside its buffer, more positions than a cache holds, a collective without `communicator`.
/// Without a choice all products are by our kernels.
Result<ShapePlan> planShapes(const ProgramPlan &plan, const SymbolValues &symbols,
                             const Communicator *communicator = nullptr, const LibraryChoice &byLibrary = {});

} // namespace fusion
