// The state of one walk over a function that turns ops into buffers and launches. Private to this room.
#pragma once

#include "codegen/BuildPlan.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace fusion {

struct Rest;
struct LibraryProducts;

class PlanBuilder {
public:
  /// A dry builder asks schedules whether they take an op, but emits nothing.
  PlanBuilder(mlir::func::FuncOp function, const PlanOptions &options, const nn::SymbolicShapes &shapes,
              bool dry);

  Status build();
  ProgramPlan takePlan() { return std::move(plan); }
  int64_t launchCount() const { return launches; }

private:
  Status planOp(mlir::Operation *op);
  /// The schedule that takes the region, or the error that buildPlan promises.
  Result<const Schedule *> chooseSchedule(const Region &region, const KernelContext &context) const;
  Status planRegion(const Region &region, llvm::ArrayRef<BufferId> outputs);
  /// One launch, or those for each of the schedule's ranges.
  Status emit(const Region &region, const KernelContext &context, const Schedule &schedule,
              llvm::ArrayRef<BufferId> outputs);
  Status emitRanges(const Region &region, const KernelContext &context, const Schedule &schedule,
                    llvm::ArrayRef<BufferId> outputs);
  // PlanSums.cpp
  /// The ways to sum over ranks, one after the other.
  Status emitForms(const Region &region, const KernelContext &context, const Schedule &schedule,
                   llvm::ArrayRef<CollectiveForm> forms, llvm::ArrayRef<BufferId> outputs);
  Status emitLibrary(const Region &region, const KernelContext &context, llvm::ArrayRef<BufferId> outputs,
                     bool isOneOfSeveral);
  void callLibrary(const Region &region, nn::AllReduceOp op, BufferId from, const Dim &offset, BufferId to);
  /// What is behind values that a library has computed; their buffers are known.
  Status emitRest(const Rest &rest, const KernelContext &context, llvm::ArrayRef<BufferId> outputs);
  // PlanProducts.cpp
  /// Behind the launches of the op planned last, which are kernels for matrix products: the library's way, if it has one.
  Status emitProducts(const Region &region, const KernelContext &context, llvm::ArrayRef<BufferId> outputs);
  Status callProducts(const Region &region, const KernelContext &context, const LibraryProducts &products,
                      llvm::ArrayRef<BufferId> outputs);
  // PlanRanges.cpp
  Status emitRanges(const Region &region, const KernelContext &context, const Schedule &schedule,
                    llvm::ArrayRef<SizeRange> ranges, llvm::ArrayRef<BufferId> outputs);
  /// Where and how the outputs of a step lie, as far as they are the region's, and with new buffers where not.
  struct Targets {
    llvm::SmallVector<BufferId> buffers;
    llvm::SmallVector<View> views;
  };
  Targets targetsOf(const Region &step, const Region &region, const KernelContext &context,
                    llvm::ArrayRef<BufferId> outputs);
  Status emitOne(const Region &region, const KernelContext &context, const Schedule &schedule,
                 llvm::ArrayRef<BufferId> outputs);
  /// A kernel that copies the elements of `value`, however they lie, into `target`.
  Status planCopy(mlir::Value value, const View &view, BufferId target, mlir::Operation *anchor);
  uint32_t shareKernel(KernelPlan kernel);
  /// KernelContext::settled for the next launch, which follows one of those from lastPlanned on.
  llvm::SmallVector<bool> settledInputs(llvm::ArrayRef<View> inputs) const;
  void describe(KernelLaunch &launch, const Region &region, const KernelContext &context,
                const KernelDraft &draft) const;

  // PlanOwners.cpp
  /// Decides on equalReplies, before which the rest is a trial.
  void findOwners();
  /// KernelContext::ownerOnly of a group; empty where its rows have no owners.
  const llvm::SmallVector<bool> &ownerOnlyOutputs(GroupOp group);
  std::optional<OwnedRows> ownedRows(GroupOp group);
  /// Whether each use of `value`, of rows as `made`, is one by the rows' owners.
  bool ownersAloneRead(mlir::Value value, const OwnedRows &made);

  // PlanBuffers.cpp
  void planArguments();
  Status planResults(mlir::Operation *returns);
  Status planResult(mlir::Operation *returns, unsigned index);
  /// A new buffer of the value's shape; the caller says whose it is.
  BufferId addBuffer(BufferPlan::Kind kind, mlir::Value value, std::string name);
  /// The buffer that holds a base value; constants and weights get theirs on the first call.
  Result<BufferId> bufferOf(mlir::Value base);
  Result<BufferId> weightBuffer(nn::WeightOp weight);
  Result<BufferId> constantBuffer(nn::ConstantOp constant);
  void recordEqualities();

  mlir::func::FuncOp function;
  const PlanOptions &options;
  const nn::SymbolicShapes &shapes;
  Views views;
  uint32_t arch;
  bool dry;
  int64_t launches = 0;
  ProgramPlan plan;
  llvm::DenseMap<mlir::Value, BufferId> buffers;
  llvm::StringMap<uint32_t> kernels;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<llvm::SmallVector<bool>>> ownerOnly; ///< by group
  std::optional<bool> equalReplies; ///< KernelContext's, for all sums
  size_t lastPlanned = 0; ///< launches from here on are of the op planned last: kernels for ranges, ways to sum over ranks
};

/// `nn.add at model.layers.0`
std::string describeOp(mlir::Operation *op);

} // namespace fusion
