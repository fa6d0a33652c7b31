// A schedule turns a region into a kernel, or says why it cannot.
#pragma once

#include "codegen/Region.h"
#include "codegen/Views.h"
#include "codegen/plan/ProgramPlan.h"

namespace fusion {

/// What a schedule may ask about the program around the region.
struct KernelContext {
  const nn::SymbolicShapes &shapes;
  /// Per region input: how its elements lie in its buffer.
  llvm::ArrayRef<View> inputs;
  uint32_t arch = 90; ///< sm_XX that the kernel will run on
  const SizeRange *range = nullptr; ///< the kernel is launched only there; one of the schedule's ranges
  /// Per region output the same; empty: all are contiguous.
  llvm::ArrayRef<View> outputs = {};
  /// Per region input: whether it is complete when the kernel starts, because the launch just before does not write it
  /// and all launches ahead of that one have finished (see pdl_wait in the prelude). Such an input can be read before
  /// pdl_wait(): by load_settled, or, if no kernel writes it, by load. Empty: nothing is known.
  llvm::ArrayRef<bool> settled = {};
  /// The way in which the kernel is to exchange data with other ranks; one of the schedule's forms.
  std::optional<CollectiveForm> form = {};
  /// Per region output: whether in the TwoShot form each rank needs those rows only that it owns, because nobody but
  /// kernels of that form with the same owners reads it, row by row. Other rows may stay unwritten. Empty: none is so.
  llvm::ArrayRef<bool> ownerOnly = {};
  /// Whether in that form owners send finished rows back that are as long as the sum, too, not only shorter ones: that is
  /// no faster by itself, but makes the residual one that only owners read.
  bool equalReplies = false;

  const DimShape &shape(mlir::Value value) const { return shapes[value]; }
  bool isSettled(unsigned input) const { return input < settled.size() && settled[input]; }
  View output(unsigned index, mlir::Value value) const {
    return outputs.empty() ? View::contiguous({}, shape(value)) : outputs[index];
  }
};

/// A kernel and how to call it, in terms of the region's inputs and outputs.
struct KernelDraft {
  KernelPlan kernel;
  struct Argument {
    enum class Kind : uint8_t { Input, Output, Size, Exchange } kind = Kind::Size;
    unsigned index =
        0; ///< input or output number; the pointer is the buffer's start, view offsets are in the source
    Dim value = 0; ///< for Size
  };
  std::vector<Argument> arguments; ///< in the order of kernel.parameters
  /// Inputs whose memory output 0 may take, if nobody reads them later: each thread reads of them only the bytes of
  /// the elements that it writes, before it writes them.
  std::vector<unsigned> replaceable;
  Dim gridX = 1, gridY = 1, gridZ = 1;
  Dim flops = 0;
  std::optional<KernelLaunch::Collective> collective;
};

class Schedule;

/// A region as two, one after the other: a kernel of schedule `firstBy` computes outputs of the region and values that
/// only `second` reads. Both have the region's inputs; behind them, `second` has what it reads of `first`.
struct Steps {
  Region first, second;
  const Schedule *firstBy = nullptr;
};

/// Who needs which rows in the TwoShot form.
struct OwnedRows {
  Dim rows;                           ///< row i belongs to rank i % ranks
  int64_t width = 0;                  ///< of a row, in elements
  Dim messageBytes;                   ///< KernelLaunch::Collective
  bool finished = false;              ///< a row's owner alone does all, given KernelContext::ownerOnly
  bool shorter = false;               ///< and sends back less than the sum
  llvm::SmallVector<bool> inputs;     ///< by region input: read by owners only, each its rows, if finished
  llvm::SmallVector<bool> outputs;    ///< by region output: written row by row, so that ownerOnly may be said of it
};

class Schedule {
public:
  virtual ~Schedule() = default;
  virtual llvm::StringRef name() const = 0;
  /// The reason why `region` cannot be one kernel of this schedule, or nothing. Cheap; writes no source.
  virtual std::optional<std::string> refuses(const Region &region, const KernelContext &context) const = 0;
  /// Where no kernel is the best one for all run-time sizes: ranges of a size that get a kernel each, ascending,
  /// without gaps, from 1 to the largest integer. Empty: one kernel. Only for a region that is not refused.
  virtual std::vector<SizeRange> ranges(const Region &, const KernelContext &) const { return {}; }
  /// The ways in which the ranks may sum what the region sums, each with a kernel of its own; with Library the nn.all_reduce
  /// is a launch of its own, and what is behind it another region. Empty: there is nothing to exchange. Only for a region that is
  /// not refused.
  virtual std::vector<CollectiveForm> forms(const Region &, const KernelContext &) const { return {}; }
  /// The region as two kernels, if that is better than one in context.range; the larger ranges have the same `first`
  /// then, whose kernel is one for all of them, and `second` is this schedule's.
  virtual std::optional<Steps> steps(const Region &, const KernelContext &) const { return std::nullopt; }
  /// Nothing where rows have no owners of their own. Only for a region that is not refused.
  virtual std::optional<OwnedRows> ownedRows(const Region &, const KernelContext &) const { return std::nullopt; }
  /// Whether a library may compute matrix products of the region instead: see LibraryProducts.
  virtual bool multiplies() const { return false; }
  /// Only for a region that is not refused, and in ranges without steps.
  virtual KernelDraft emit(const Region &region, const KernelContext &context) const = 0;
  /// The input of which output 0 must hold a copy before the kernel starts, if the kernel writes only a part.
  virtual std::optional<unsigned> updatedInput(const Region &) const { return std::nullopt; }
};

/// A refusal for schedules that do not read packed inputs: names the first one, if there is one.
std::optional<std::string> readsPacked(const Region &region, const KernelContext &context);

/// All schedules: pointwise, row, scan, matmul, attention, collective.
llvm::ArrayRef<const Schedule *> allSchedules();
/// The same in the order in which they are tried for a region: as above, but rows first where all that leaves are
/// tensors side by side, which they copy in 16 bytes at a time.
llvm::SmallVector<const Schedule *> schedulesFor(const Region &region);
const Schedule *findSchedule(llvm::StringRef name);

} // namespace fusion
