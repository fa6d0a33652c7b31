// The candidates of a round: legal, with a schedule and a score.
#pragma once

#include "passes/fuse/Fuse.h"
#include "passes/fuse/FuseSites.h"
#include "passes/fuse/Traffic.h"

namespace fusion {

class CandidatePool {
public:
  /// What it is given lives as long as it does.
  CandidatePool(const FuseOptions &options, ScheduleOracle &oracle, const Traffic &traffic, FuseSites &sites,
                FusionReport &report)
      : options(options), oracle(oracle), traffic(traffic), sites(sites), report(report) {}

  /// Takes a candidate, with the ops that decode the operands of its matmuls, or notes why it is none.
  /// `opsFound`: of its pattern, by the match. Returns its number.
  std::optional<size_t> consider(Candidate candidate, unsigned opsFound);
  /// A candidate of no pattern: all its ops were found. Where a user's pattern grew, the match itself says
  /// why it is missed.
  std::optional<size_t> consider(Candidate candidate);

  /// Scores what came since the last call by the time that it saves, if it is to be measured. What cannot be
  /// keeps its score.
  void measure();

  llvm::ArrayRef<Candidate> all() const { return candidates; }
  /// The disjoint set with the largest sum of scores, of those that may be taken. `shared`: as if what they
  /// compute again had no other readers.
  llvm::SmallVector<size_t> choose(llvm::function_ref<bool(size_t)> mayTake, bool shared) const;
  /// What a disjoint set is worth, to compare sets: the scores, or, where nothing is measured, what the block
  /// would cost with it, counted once.
  double worth(llvm::ArrayRef<size_t> chosen, mlir::Block &block);

private:
  /// What became of proposed ops.
  struct Known {
    mlir::Operation *root;
    std::optional<size_t> number = std::nullopt;
    std::string refusal = {}; ///< if it has no number
    int64_t wouldSave = 0;    ///< bytes, if it has no number
  };
  using Key = std::pair<std::string, std::vector<mlir::Operation *>>;

  std::optional<size_t> add(Candidate candidate, unsigned opsFound);
  /// Fills in schedule and score, or says why there is none.
  std::optional<std::string> whyNot(Candidate &candidate);
  /// `kernels`: what each kernel reads and writes, of a group without parts all of its kernels.
  void score(Candidate &candidate, llvm::ArrayRef<GroupPorts> kernels, int64_t launches);
  /// Of an op by itself: what it moves and its launches.
  double costOf(mlir::Operation *op);
  int64_t bytesOf(mlir::Operation *op);
  void preferLarger();
  void compareTimes(Candidate &whole, llvm::ArrayRef<size_t> others);
  void preferToParts(Candidate &whole) const;
  void preferMatmulsToNorms();

  const FuseOptions &options;
  ScheduleOracle &oracle;
  const Traffic &traffic;
  FuseSites &sites;
  FusionReport &report;
  std::vector<Candidate> candidates;
  std::map<Key, Known> known;
  llvm::DenseMap<mlir::Operation *, int64_t> unfusedBytes; ///< as far as asked, as the next
  llvm::DenseMap<mlir::Operation *, int64_t> unfusedKernels;
  size_t measured = 0; ///< so many at the front are
};

} // namespace fusion
