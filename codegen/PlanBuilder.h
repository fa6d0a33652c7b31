// The state of one walk over a function that turns ops into buffers and launches. Private to this room.
#pragma once

#include "codegen/BuildPlan.h"
#include "codegen/NormedMatmul.h"
#include "ir/dialect/Loop.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace fusion {

struct RemainingOps;
struct LibraryMatmuls;

class PlanBuilder {
public:
  PlanBuilder(mlir::func::FuncOp function, const PlanOptions &options, const TargetInfo &target,
              const nn::SymbolicShapes &shapes)
      : PlanBuilder(function, options, target, shapes, {}) {}

  Status build();
  ProgramPlan takePlan() { return std::move(plan); }

private:
  /// As Views::compute() takes `arguments`.
  PlanBuilder(mlir::func::FuncOp function, const PlanOptions &options, const TargetInfo &target,
              const nn::SymbolicShapes &shapes, llvm::ArrayRef<View> arguments);
  Status planOp(mlir::Operation *op);
  /// Whether the op, not a view, follows from weights and constants alone: its result is made once.
  bool isPrepared(mlir::Operation *op) const;
  /// Of a region whose values lie so.
  KernelContext contextOf(llvm::ArrayRef<View> inputs, llvm::ArrayRef<View> outputs) const;
  Status planRegion(const Region &region, llvm::ArrayRef<BufferId> outputs);
  /// A step that computes the region.
  Status emit(const Region &region, const KernelContext &context, const SchedulePlan &planned,
              llvm::ArrayRef<BufferId> outputs);
  /// One kernel for all sizes of the context.
  Result<Alternative> oneLaunch(const Region &region, const KernelContext &context,
                                const KernelEmitter &emitter, llvm::ArrayRef<BufferId> outputs);
  // PlanSums.cpp
  /// The alternatives of a sum over ranks, by algorithm.
  Result<Step> sumOverRanks(const Region &region, const KernelContext &context,
                            llvm::ArrayRef<PlannedAlternative> planned, llvm::ArrayRef<BufferId> outputs);
  Result<std::vector<Alternative>> sumByLibrary(const Region &region, const KernelContext &context,
                                                llvm::ArrayRef<BufferId> outputs);
  /// Gives the last matmul's step and the sum of its result linked launches, where they can have them.
  /// `emitters`: as of alternativesOf(), for the first alternatives of the sum.
  void linkSum(const Region &region, const KernelContext &context, llvm::ArrayRef<KernelEmitter> emitters,
               llvm::ArrayRef<BufferId> outputs, Step &sum);
  /// The launch that `linked` asks for, if there is a kernel that can do that.
  std::optional<KernelLaunch> linkedLaunch(const Region &region, const KernelContext &linked,
                                           const KernelEmitter &emitter, llvm::ArrayRef<BufferId> outputs);
  KernelLaunch callAllReduce(const Region &region, nn::AllReduceOp op, BufferId from, const Dim &offset,
                             BufferId to);
  /// The ops after values that a library has computed; their buffers are known.
  Result<std::vector<Alternative>> remainingOps(const RemainingOps &remaining, const KernelContext &context,
                                                llvm::ArrayRef<BufferId> outputs);
  // PlanNorms.cpp
  /// Links the last matmul's step, perhaps that of the norm of its result, and this one, of matmuls of that;
  /// or keeps a norm for the step after this one.
  void linkNorm(const Region &region, const KernelContext &context, llvm::ArrayRef<BufferId> outputs,
                Step &last);
  /// Whether these contiguous rows are the one result of the last matmul, and its step the one before `step`.
  bool isResultOfLastMatmul(const View &rows, size_t step) const;
  /// Whether no kernel of a run so far writes the buffer.
  bool isNeverWritten(BufferId buffer) const;
  // PlanMatmuls.cpp
  /// Adds to a step whose kernels multiply matrices the library's variant, if it has one.
  Status addLibraryVariant(Step &step, const Region &region, const KernelContext &context,
                           const std::optional<Region> &multiplied, llvm::ArrayRef<BufferId> outputs);
  /// The library's calls for the matmuls, and the kernels of the remaining ops.
  Result<Alternative> launchesOfLibrary(const Region &region, const KernelContext &context,
                                        llvm::ArrayRef<BufferId> outputs);
  Result<Alternative> launchesOfLibrary(const Region &region, const KernelContext &context,
                                        const LibraryMatmuls &split, llvm::ArrayRef<BufferId> outputs);
  Result<std::vector<KernelLaunch>> callMatmuls(const Region &region, const KernelContext &context,
                                                const LibraryMatmuls &products,
                                                llvm::ArrayRef<BufferId> outputs);
  // PlanAlternatives.cpp
  /// `emitters`, if given, takes for each alternative what emits its one kernel; nothing if it has several,
  /// or a library multiplies.
  Result<std::vector<Alternative>> alternativesOf(const Region &region, const KernelContext &context,
                                                  llvm::ArrayRef<PlannedAlternative> planned,
                                                  llvm::ArrayRef<BufferId> outputs,
                                                  std::vector<KernelEmitter> *emitters = nullptr);
  /// Where and how the outputs of a kernel lie, as far as they are the region's, and with new buffers where
  /// not.
  struct Targets {
    llvm::SmallVector<BufferId> buffers;
    llvm::SmallVector<View> views;
  };
  Targets targetsOf(const Region &part, const Region &region, const KernelContext &context,
                    llvm::ArrayRef<BufferId> outputs);
  /// The launch of one of several kernels, after those of `before`; `inputs` are the region's and grow by
  /// what it makes.
  Result<Alternative> partLaunch(const PlannedKernel &part, const Region &region,
                                 const KernelContext &context, const Alternative &before,
                                 llvm::ArrayRef<BufferId> outputs);
  /// A kernel that copies the elements of `value`, however they lie, into `to`.
  Result<Alternative> oneCopy(mlir::Value value, const View &view, BufferId to, mlir::Operation *anchor);
  Status planCopy(mlir::Value value, const View &view, BufferId to, mlir::Operation *anchor);
  uint32_t shareKernel(KernelPlan kernel);
  /// KernelContext::independent for a launch after those of `before`, after the steps so far.
  llvm::SmallVector<bool> independentInputs(llvm::ArrayRef<View> inputs,
                                            llvm::ArrayRef<KernelLaunch> before) const;
  bool mayStillBeWritten(BufferId buffer, llvm::ArrayRef<KernelLaunch> before) const;
  void describe(KernelLaunch &launch, const Region &region, const KernelContext &context,
                const KernelDraft &draft) const;

  // PlanScattering.cpp
  /// Decides on gathersFullSizeRows, before which the rest is a trial.
  void chooseScattering();
  /// KernelContext::scattered of a group; empty where the ranks do not divide its rows.
  const llvm::SmallVector<bool> &scatteredOutputs(GroupOp group);
  std::optional<ScatteredRows> scatteredRows(GroupOp group);
  /// Whether `value`, whose rows are divided as `made`, can stay scattered: each use reads only the rank's
  /// own rows.
  bool staysScattered(mlir::Value value, const ScatteredRows &made);

  // PlanLoops.cpp
  Status planLoop(nn::LoopOp loop);
  /// Of a loop's body: the steps of one round, whose state lies in these buffers.
  Status planRounds(llvm::ArrayRef<BufferId> states);
  /// Everything that is made, not what it is made of.
  void exchangeWith(PlanBuilder &other);

  // PlanBuffers.cpp
  void planArguments();
  Status planResults(mlir::Operation *returns);
  Status planResult(mlir::Operation *returns, unsigned index);
  /// A new buffer of the value's shape; the caller says whose it is.
  BufferId addBuffer(BufferPlan::Kind kind, mlir::Value value, std::string name);
  /// The scratch memory of the region's kernels, of which the alternatives may need differently much.
  BufferId scratchBuffer(const Region &region, const Dim &elements);
  std::optional<BufferId> writtenScratch(const KernelLaunch &launch) const;
  /// Leaves out a first launch that writes nothing but scratch memory, where an earlier step writes the same
  /// for the same sizes.
  void shareScratch(Alternative &alternative) const;
  /// The buffer that holds a base value; constants and weights get theirs on the first call.
  Result<BufferId> bufferOf(mlir::Value base);
  Result<BufferId> weightBuffer(nn::WeightOp weight);
  Result<BufferId> constantBuffer(nn::ConstantOp constant);
  void recordEqualities();

  mlir::func::FuncOp function;
  const PlanOptions &options;
  const nn::SymbolicShapes &shapes;
  Views views;
  const TargetInfo &target; ///< completed by the device that the plan is for, if it is present
  bool isInLoop = false;    ///< each kernel comes after all others of its round, too
  ProgramPlan plan;
  std::vector<Step> *steps = &plan.steps; ///< where steps go: those of a run or the preparation
  llvm::DenseSet<mlir::Value> prepared;   ///< results of ops that the preparation computes
  llvm::DenseMap<mlir::Value, BufferId> buffers;
  llvm::DenseMap<mlir::Operation *, BufferId> scratch; ///< by region's anchor
  /// Of values between the kernels of one alternative.
  llvm::DenseMap<mlir::Value, View> between;
  llvm::StringMap<uint32_t> kernels;
  /// The step of a matmul, kept for a sum or a norm of its result that may come next.
  struct LastMatmul {
    size_t step; ///< in plan.steps
    Region region;
    llvm::SmallVector<View> inputs, targets;
    llvm::SmallVector<bool> independent;
    std::vector<KernelEmitter> emitters; ///< as of alternativesOf(), for the first alternatives
    llvm::SmallVector<BufferId> outputs;
  };
  std::optional<LastMatmul> lastMatmul;
  /// The step of a norm of its result.
  struct LastNorm {
    size_t step;
    mlir::Operation *op; ///< or group
    NormOfRows norm;
  };
  std::optional<LastNorm> lastNorm;
  std::optional<BufferId> squares; ///< of the steps that linkNorm() is about
  llvm::DenseSet<uint32_t> early;  ///< kernels that let the next one start before they have waited
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<llvm::SmallVector<bool>>> scattered; ///< by group
  std::optional<bool> gathersFullSizeRows; ///< KernelContext's, for all sums
};

} // namespace fusion
