// The ranks of a tensor-parallel group, simulated in one process: the oracle for what runs on several GPUs.
#pragma once

#include "ir/reference/Reference.h"
#include "runtime/collective/Shards.h"

namespace fusion {

/// One rank's graph, as the shard pass leaves it, run once a rank at the same time, each in its own thread,
/// on the reference. Collectives meet in memory: sums in f32 (f64 for f64) in rank order, rounded once.
class RankReference {
public:
  /// `function` carries `nn.mesh`; it must outlive this and not change. Errors: those of nn::checkSums.
  static Result<RankReference> create(mlir::func::FuncOp function, const std::string &baseFolder);

  /// Inputs and outputs of the whole graph: divided ones are cut and joined here. An error of one rank stops
  /// all; the first rank's is returned, with its number.
  Result<NamedTensors> run(const NamedTensors &inputs) const;
  /// In the order of the function's.
  const std::vector<PortShard> &inputs() const { return arguments; }
  const std::vector<PortShard> &outputs() const { return results; }

private:
  mlir::func::FuncOp function;
  std::string baseFolder;
  int64_t ranks = 1;
  std::vector<PortShard> arguments, results;
};

} // namespace fusion
