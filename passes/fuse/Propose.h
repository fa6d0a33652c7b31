// Families whose candidates are grown in C++ from an anchor, where a pattern would have to enumerate. They compete with
// the declarative patterns or take what those left, and only propose: legality, schedule, score and choice are the same
// for all.
#pragma once

#include "passes/fuse/Traffic.h"

namespace fusion {

struct Proposals {
  std::vector<Candidate> candidates; ///< pattern, root, ops and clones; the rest is filled in by who asked
  struct Miss {
    mlir::Operation *root;
    std::string reason;
  };
  std::vector<Miss> misses; ///< anchors without a candidate
};

struct ProposalContext {
  mlir::Block &block;
  const Traffic &traffic;
  const ScheduleOracle &oracle;
  llvm::ArrayRef<Candidate> found = {}; ///< of the families that compete and had their say before
};

/// From every nn.matmul: the scalar ops behind it, as far as they are the only readers. Each length is a candidate.
Proposals proposeEpilogues(const ProposalContext &context);

/// Disjoint sets of elementwise and index ops, as large as possible, whose results have one shape. Cheap ops with other
/// readers are cloned; expensive ones are never computed twice.
Proposals proposePointwise(const ProposalContext &context);

/// From every nn.attention: the transpose and the reshape behind it, which would be a copy.
Proposals proposeAttentionLayouts(const ProposalContext &context);

/// From every nn.attention that reads nn.concat(past, new): the rotations and the writes into the cache.
Proposals proposeCacheWrites(const ProposalContext &context);

/// From every nn.matmul of quantised operands that no other family took: the product with the ops that decode them.
Proposals proposeScaledMatmuls(const ProposalContext &context);

/// The ops that make an operand of nn.matmul from a quantised one: nn.dequantize, or, for an integer product, the widening
/// cast and the subtraction of the zero point. In block order; empty if `operand` is not made so.
llvm::SmallVector<mlir::Operation *> decodingOps(mlir::Value operand);
/// The quantised value behind `operand`, or `operand` itself.
mlir::Value encodedOperand(mlir::Value operand);

/// The candidate with the decoding ops of its products inside: as members where nobody else reads them, else as clones.
/// The candidate itself if there are none.
Candidate withDecoding(const Candidate &candidate);

/// The products of one input by weights, with their biases, side by side.
Proposals proposeProducts(const ProposalContext &context);

/// What belongs to a product: the scales behind an integer one (a cast and a multiplication, whose factor may be a
/// product of two scales, and a cast to the model's type), a bias, and an activation that gates nothing.
llvm::SmallVector<mlir::Operation *> stepsBehind(nn::MatmulOp matmul);

/// Norms in front of products of few rows.
Proposals proposeNormMatmuls(const ProposalContext &context);

/// Norms of one value, where no sum and no quantisation made them a group already.
Proposals proposeSiblingNorms(const ProposalContext &context);

/// Larger groups around the norms of `found`, the candidates of add_norm, norm_quant and add_norm_quant: the other norms
/// of the same value with their tails, the adds behind the residual add, the norm of the branch that is added. Each is a
/// candidate of its own.
std::vector<Candidate> growNorms(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

/// From the rotation's operand back to a norm, through views and casts that nobody else reads. Empty if there is none.
llvm::SmallVector<mlir::Operation *> normAhead(nn::RopeOp rope);

/// The norm that alone reads the rotation, if there is one.
mlir::Operation *normBehind(nn::RopeOp rope);
/// The rotation that computes `value`, with or without a norm behind it.
nn::RopeOp rotationBehind(mlir::Value value);

/// The rotations of one attention's queries and keys, and single ones, with norms that stand ahead of views and casts or
/// behind the rotation.
std::vector<Candidate> growRopes(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

/// Pairs of rotations by the same angles, with the norms in front of them, that no candidate of `found` has together.
std::vector<Candidate> growRotations(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

/// Gated pairs of integer products, with the scales behind each.
std::vector<Candidate> growGates(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

struct Proposer {
  llvm::StringRef family;
  Proposals (*propose)(const ProposalContext &);
  bool competes = false; ///< chosen together with the patterns, not from what they left
};
/// In the order in which they take their turn.
llvm::ArrayRef<Proposer> proposers();

} // namespace fusion
