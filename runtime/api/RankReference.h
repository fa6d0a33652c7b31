// The ranks of a tensor-parallel group, simulated in one process: the oracle for what runs on several GPUs.
#pragma once

#include "ir/reference/Reference.h"

namespace fusion {

/// One rank's graph, as the shard pass leaves it, run once a rank at the same time, each in its own thread,
/// on the reference. Collectives meet in memory: sums in f32 (f64 for f64) in rank order, rounded once.
class RankReference {
public:
  /// `function` carries `nn.ranks`; it must outlive this and not change.
  static Result<RankReference> create(mlir::func::FuncOp function, const std::string &baseFolder);

  /// Inputs and outputs of the whole graph: divided ones are cut and joined here. An error of one rank stops
  /// all; the first rank's is returned, with its number.
  Result<NamedTensors> run(const NamedTensors &inputs) const;

private:
  /// How an argument or result lies over the ranks; axis -1: every rank has all of it.
  struct Placement {
    std::string name;
    int64_t axis = -1, pieces = 1;
  };
  int64_t pieceOf(int64_t rank, const Placement &placement) const { return rank * placement.pieces / ranks; }

  mlir::func::FuncOp function;
  std::string baseFolder;
  int64_t ranks = 1;
  std::vector<Placement> arguments, results;
};

/// Piece `index` of `count` equal ones along `axis`; and the inverse.
Tensor pieceOf(const Tensor &whole, int64_t axis, int64_t index, int64_t count);
Tensor joined(const std::vector<Tensor> &pieces, int64_t axis);

} // namespace fusion
