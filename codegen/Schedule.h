// A schedule turns a region into a kernel, or says why it cannot.
#pragma once

#include "codegen/Region.h"
#include "codegen/Views.h"
#include "codegen/plan/ProgramPlan.h"
#include "codegen/target/TargetInfo.h"

#include <functional>

namespace fusion {

class ScheduleSet;
/// The project's own schedules: pointwise, row, scan, matmul, experts, attention, collective.
const ScheduleSet &builtinSchedules();

/// For a value whose rows go where data says: row i of it to row `rows`[i] of the buffer, if that exists; see
/// nn.cache_write. Of an nn.scatter_nd along dim 0, whose rows are [rows, 1], a negative one counts from the
/// end.
struct RowPlacement {
  mlir::Value rows;
  unsigned dim = 0;        ///< along which rows are counted, in the value and in the buffer
  Dim size, past, fresh;   ///< rows of the buffer, of what it held, of the value
  bool clears = false;     ///< instead zeros, to row past + (rows[i] - past) mod fresh, if that is another
  bool scatters = false;   ///< by nn.scatter_nd
};

/// What a schedule may ask about the program around the region.
struct KernelContext {
  const nn::SymbolicShapes &shapes;
  /// Per region input: how its elements lie in its buffer.
  llvm::ArrayRef<View> inputs;
  const TargetInfo &target = TargetInfo::standard(); ///< what the kernel will run on
  llvm::ArrayRef<SizeRange> when = {};               ///< the kernel is launched only where all of these hold
  /// Per region output the same; empty: all are contiguous.
  llvm::ArrayRef<View> outputs = {};
  /// Per region input: whether no launch writes it that may still run when the kernel starts: the one just
  /// before, and, as long as these let the next one start early, those before it (see pdl_wait in the
  /// prelude). Such an input can be read before pdl_wait(): by load_early, or, if no kernel writes it, by
  /// load. Empty: nothing is known.
  llvm::ArrayRef<bool> independent = {};
  /// Whether kernels may let the next one start before they have waited: see early_launch.cuh.
  bool mayLaunchEarly = false;
  /// How the kernel is to exchange data with other ranks.
  std::optional<CollectiveAlgorithm> algorithm = {};
  /// Of a matmul: its kernel is to send its result to all ranks, for the sum over so many that comes next.
  /// One that cannot says so by KernelDraft::sends.
  int64_t sendsTo = 0;
  /// Of that sum, by the OneShot algorithm: the addends have been sent so.
  bool isSent = false;
  /// Of a matmul: its kernel is to sum up squares of its result's rows as well, for the norm that comes next
  /// (squares_epilogue.cuh). One that cannot says so by KernelDraft::sends.
  bool sumsSquares = false;
  /// Per region output: whether it stays scattered in the TwoShot algorithm. Only kernels of that algorithm
  /// read it, and each rank reads only the rows that it reduces, so that a rank may leave the others
  /// unwritten. Empty: none is so.
  llvm::ArrayRef<bool> scattered = {};
  /// Whether in that algorithm rows are gathered after the norm even if they are as long as the sum, not only
  /// if they are shorter: that is no faster by itself, but lets the residual stay scattered.
  bool gathersFullSizeRows = false;
  /// Which schedules the compilation asks: for one that leaves a part of its region to others.
  const ScheduleSet &schedules = builtinSchedules();
  /// Per region output: where its rows go if data says so. Empty: none does.
  llvm::ArrayRef<std::optional<RowPlacement>> placements = {};
  /// What a row gets must not depend on how many rows or sequences there are beside it, nor on what is in
  /// them: sums over a row are added up in one order, whatever the number of rows. See
  /// SchedulePlan::batchInvariant.
  bool batchInvariant = false;

  const DimShape &shape(mlir::Value value) const { return shapes[value]; }
  bool isIndependentOfPredecessor(unsigned input) const {
    return input < independent.size() && independent[input];
  }
  /// What `when` says of a size; null: nothing.
  const SizeRange *rangeOf(const Dim &size) const {
    const auto *found = llvm::find_if(when, [&](const SizeRange &range) { return range.size == size; });
    return found == when.end() ? nullptr : found;
  }
  /// For schedules that choose by one size.
  const SizeRange *range() const { return when.empty() ? nullptr : when.begin(); }
  View output(unsigned index, mlir::Value value) const {
    return outputs.empty() ? View::contiguous({}, shape(value)) : outputs[index];
  }
};

/// A kernel and how to call it, in terms of the region's inputs and outputs.
struct KernelDraft {
  KernelPlan kernel;
  struct Argument {
    /// Scratch: memory of i32 that the kernels of one region share. Squares: of f32, for what
    /// KernelContext::sumsSquares asks.
    enum class Kind : uint8_t { Input, Output, Size, Exchange, TensorMap, Scratch, Squares } kind = Kind::Size;
    unsigned index =
        0; ///< input or output number; the pointer is the buffer's start, view offsets are in the source
    Dim value = 0;        ///< for Size; of Scratch and Squares: elements
    bool written = false; ///< of Scratch and Squares
    TensorMapArgument map = {}; ///< of input `index`: all but the buffer
  };
  std::vector<Argument> arguments; ///< in the order of kernel.parameters
  /// Inputs whose memory output 0 may take, if they are not read later: each thread reads of them only the
  /// bytes of the elements that it writes, before it writes them.
  std::vector<unsigned> replaceable;
  bool sends = false; ///< does as KernelContext::sendsTo or sumsSquares asks, or as isSent
  bool launchesEarly = false; ///< lets the next kernel start before it has waited itself
  Dim gridX = 1, gridY = 1, gridZ = 1;
  Dim flops = 0;
  std::optional<Collective> collective;
};

/// Writes a kernel for a region: one for all sizes, or for those of context.when, which follows
/// context.algorithm where ranks exchange data. The context says where the region's values lie.
using KernelEmitter = std::function<KernelDraft(const KernelContext &)>;

/// One of the kernels that compute a region one after the other. Its inputs are the region's, followed by
/// what it reads of the kernels before it.
struct PlannedKernel {
  Region region; ///< what it computes
  KernelEmitter emit;
  bool byLibrary = false; ///< instead a library multiplies, and kernels do what remains: see LibraryMatmuls
};

/// What computes a region for some sizes.
struct PlannedAlternative {
  Predicate when; ///< empty: all sizes
  std::optional<CollectiveAlgorithm> algorithm; ///< by which ranks add up
  /// None for the Library algorithm: there the nn.all_reduce is a launch of its own, and the ops after it are
  /// another region.
  std::vector<PlannedKernel> kernels;
  /// Alternative::variant, where a device measures which kernel is the faster one. Those of the first
  /// variant, which is taken where nothing is measured, are for all sizes.
  const char *variant = "";
  /// Whether what the first kernel writes to scratch memory stays as it is: then a later step that would write
  /// the same there reads it instead.
  bool keepsScratch = true;
};

/// How the TwoShot algorithm divides rows among the ranks: row i is reduced by rank i % ranks.
struct ScatteredRows {
  Dim rows;
  int64_t width = 0;                  ///< of a row, in elements
  Dim messageBytes;                   ///< Collective
  bool gathersRows = false;           ///< Collective::gathersRows, given KernelContext::scattered
  bool shorter = false;               ///< and they are shorter than the sum
  llvm::SmallVector<bool> inputs;     ///< by region input: each rank reads only its own rows, if gathersRows
  llvm::SmallVector<bool> outputs;    ///< by region output: written row by row, so that it may stay scattered
};

/// How a schedule computes a region. It keeps the analysis, and writes kernels on demand.
/// The region and what the context refers to must outlive it.
struct SchedulePlan {
  /// The whole region as one kernel; null where none computes it, but `split` says how several do.
  KernelEmitter emit;
  /// The alternatives in the order of Step::alternatives: of each algorithm the first whose predicate holds.
  /// Null: `emit`, for all sizes.
  std::function<std::vector<PlannedAlternative>()> split = {};
  /// How ranks divide the rows in the TwoShot algorithm; null where they do not.
  std::function<std::optional<ScatteredRows>()> scatteredRows = {};
  /// The input of which output 0 must hold a copy before the kernel starts, if the kernel writes only a part.
  std::optional<unsigned> updatedInput = {};
  /// Whether the kernels keep what KernelContext::batchInvariant demands. A schedule that does not say so is
  /// not used in such a program.
  bool batchInvariant = false;
  /// Whether a library may compute the matmuls of the region instead: see LibraryMatmuls.
  bool multiplies = false;
  /// Where the matmuls are only a part of the region that `matmul` takes: that part.
  std::optional<Region> multiplied = {};

  std::vector<PlannedAlternative> alternatives(const Region &region) const;
};

/// One kernel for each range, of which there are none where one kernel is for all sizes.
std::vector<PlannedAlternative> alternativesFor(llvm::ArrayRef<SizeRange> ranges, const Region &region,
                                                const KernelEmitter &emit);
/// The same for each predicate.
std::vector<PlannedAlternative> alternativesWhere(llvm::ArrayRef<Predicate> predicates, const Region &region,
                                                  const KernelEmitter &emit);

/// The error of Schedule::plan() for a region that it does not take.
inline Error refusal(std::string reason) { return {ErrorKind::AnswerIsNo, std::move(reason)}; }

class Schedule {
public:
  virtual ~Schedule() = default;
  virtual llvm::StringRef name() const = 0;
  /// Whether the region has what the schedule is for. Where none takes a region, the reasons of those that this
  /// says no of are not told.
  virtual bool concerns(const Region &region) const { return true; }
  /// Whether parts of the region keep kernels of their own, as alternatives that run where nothing is
  /// measured: then a group of them loses nothing.
  virtual bool keepsParts() const { return false; }
  /// How it computes the region, or the reason why it cannot. Cheap: writes no source.
  virtual Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const = 0;
};

/// Whether one of the region's ops is of these kinds.
template <class... Ops>
bool holdsAny(const Region &region) {
  return llvm::any_of(region.ops, llvm::IsaPred<Ops...>);
}

/// Matrices are multiplied in it: no schedule of single elements, or of rows, is for that.
inline bool holdsProducts(const Region &region) {
  return holdsAny<nn::MatmulOp, nn::ExpertMatmulOp, nn::AttentionOp, nn::LinearAttentionOp>(region);
}

/// A refusal for schedules that do not read packed inputs: names the first one, if there is one.
std::optional<std::string> readsPacked(const Region &region, const KernelContext &context);

/// The schedules that a compilation asks.
class ScheduleSet {
public:
  /// Those of builtinSchedules().
  ScheduleSet();
  /// The caller's own are asked before those that are there. They must outlive whatever uses the set.
  explicit ScheduleSet(llvm::ArrayRef<const Schedule *> own);

  llvm::ArrayRef<const Schedule *> all() const { return list; }
  const Schedule *find(llvm::StringRef name) const;
  /// In the order in which they are tried for a region: as in all(), but rows before pointwise where all that
  /// leaves are tensors side by side, which they copy in 16 bytes at a time.
  llvm::SmallVector<const Schedule *> inOrderFor(const Region &region) const;

private:
  llvm::SmallVector<const Schedule *> list;
};

} // namespace fusion
