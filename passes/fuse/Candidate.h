// A set of ops that a pattern wants as one kernel.
#pragma once

#include "ir/base/Result.h"
#include "ir/dialect/SymbolicShapes.h"

#include <string>

namespace fusion {

struct Candidate {
  std::string pattern;
  bool isUsers = false; ///< of a pattern that a user brought
  /// Nothing without what its kernel does as it reads operands: see withDecoding().
  bool isForOperands = false;
  mlir::Operation *root = nullptr;
  llvm::SmallVector<mlir::Operation *> ops; ///< distinct, in block order
  /// Cheap ops that are computed in the group too and stay outside for their other readers. In block order;
  /// nothing that they read is among `ops`.
  llvm::SmallVector<mlir::Operation *> clones = {};
  /// Of the clones those whose originals are expected to lose all readers, as other groups clone them too.
  llvm::SmallVector<mlir::Operation *> replaced = {};
  /// Roots of other candidates of which nothing is left when this one is taken: they fire with it.
  llvm::SmallVector<std::pair<mlir::Operation *, std::string>> absorbed = {};
  /// Why less traffic and fewer launches do not make it faster; it is taken where it measures faster. Empty:
  /// they do.
  std::string unproven = {};
  /// Why a measurement of it does not say enough either; it is taken where its schedule keeps kernels of its
  /// parts, and chooses in each run.
  std::string unmeasurable = {};
  /// Its schedule keeps kernels of its parts, and each run takes what is faster there: of a measurement at one
  /// size, noise is no reason to take groups of the parts instead.
  bool choosesInRuns = false;
  std::string schedule;                     ///< that takes it
  int64_t bytesMoved = 0;                   ///< by its kernel
  int64_t bytesSaved = 0;
  double score = 0;                         ///< what the choice maximises; negative: not worth it
  double shared = 0; ///< what it saves besides if all that computes `replaced` again is taken
  double noise = 0;                         ///< of a measured score
  double fusedTime = 0, unfusedTime = 0;    ///< microseconds; 0: not measured

  bool overlaps(const Candidate &other) const;
  /// ops and clones, in block order.
  llvm::SmallVector<mlir::Operation *> body() const;
};

/// What a group of `ops` would read and hand out.
struct GroupPorts {
  llvm::SmallVector<mlir::Value> inputs;  ///< in order of first use; constants that go into the body excluded
  llvm::SmallVector<mlir::Value> outputs; ///< results with a user outside
};
GroupPorts portsOf(llvm::ArrayRef<mlir::Operation *> ops, llvm::ArrayRef<mlir::Operation *> clones = {});

/// Constants small enough to be cloned into a group's body.
bool isBodyConstant(mlir::Operation *op);

/// Whether `ops` can become one op: same block, and no path leaves the set and enters it again. The reason if
/// not.
std::optional<std::string> whyNotConvex(llvm::ArrayRef<mlir::Operation *> ops,
                                        llvm::ArrayRef<mlir::Operation *> clones = {});

/// Replaces the ops by a fusion.group that holds them (moved, not cloned). Ops must be convex.
GroupOp commit(const Candidate &candidate);

/// The inverse of commit(): its ops stand where the group stood, in their order.
void dissolve(GroupOp group);

/// Says which schedule would take ops as one kernel. Implemented above the passes, by the code generator.
class ScheduleOracle {
public:
  virtual ~ScheduleOracle() = default;
  /// Called before questions about `function`; it may change between calls of begin only by commits.
  virtual void begin(mlir::func::FuncOp function, const nn::SymbolicShapes &shapes) = 0;
  /// The schedule's name, or the reason why none does.
  virtual Result<std::string> schedule(llvm::ArrayRef<mlir::Operation *> ops, const GroupPorts &ports) = 0;
  /// What the kernels of a group's parts read and write, where the schedule keeps those and runs them where
  /// nothing is measured; empty where the group is one kernel.
  virtual llvm::SmallVector<GroupPorts> parts(llvm::ArrayRef<mlir::Operation *>, const GroupPorts &,
                                              llvm::StringRef) {
    return {};
  }
  /// The same of a group that is there.
  virtual llvm::SmallVector<GroupPorts> parts(GroupOp) { return {}; }
  /// Why the group's own schedule does not take it as it stands in the function; nothing if it does.
  virtual std::optional<std::string> refusal(GroupOp group) = 0;
  /// Whether an op of the function, outside any group, only looks at memory in another way and costs nothing.
  virtual bool isView(mlir::Operation *op) const = 0;
  /// The argument in whose buffer `value` is written after what is there already, if any: neither is moved.
  virtual mlir::Value extendedInPlace(mlir::Value) const { return {}; }
  /// How many kernels compute a group at `sizes`, by the schedule of this name, where nothing is measured.
  virtual int64_t kernels(llvm::ArrayRef<mlir::Operation *>, const GroupPorts &, llvm::StringRef,
                          const SymbolValues & /*sizes*/) {
    return 1;
  }
  /// The same of an op or group of the function. It is no view.
  virtual int64_t kernels(mlir::Operation *, const SymbolValues & /*sizes*/) { return 1; }
  /// The ops and groups of the function that launch kernels, in their order.
  virtual llvm::SmallVector<mlir::Operation *> launching(mlir::func::FuncOp function) = 0;
};

/// The disjoint subset with the largest total score. Negative scores are not taken. Returns indices into
/// `candidates`.
llvm::SmallVector<size_t> chooseCandidates(llvm::ArrayRef<Candidate> candidates,
                                           llvm::ArrayRef<double> scores);

} // namespace fusion
