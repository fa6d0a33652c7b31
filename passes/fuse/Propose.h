// Families whose candidates are grown in C++ from an anchor, where a pattern would have to enumerate. They
// only propose: legality, schedule, score and choice are the same for all and for the declarative patterns.
#pragma once

#include "passes/Passes.h"
#include "passes/fuse/Traffic.h"

#include "llvm/ADT/DenseSet.h"

namespace fusion {

struct Proposals {
  std::vector<Candidate> candidates; ///< pattern, root, ops and clones; the caller fills in the others
  struct Miss {
    mlir::Operation *root;
    std::string reason;
    llvm::SmallVector<mlir::Operation *> found = {}; ///< what a candidate would be made of, if that is known
  };
  std::vector<Miss> misses; ///< anchors without a candidate
};

struct ProposalContext {
  mlir::Block &block;
  const Traffic &traffic;
  ScheduleOracle &oracle;
  llvm::ArrayRef<Candidate> found = {}; ///< of the families that had their say before
  const llvm::DenseSet<mlir::Operation *> *taken = nullptr; ///< ops that others would take
};

/// From every nn.matmul: the scalar ops that follow it, as far as they are the only readers. Each length is a
/// candidate.
Proposals proposeEpilogues(const ProposalContext &context);

/// From every norm of rows of tables, or of scalar ops on such: all of them.
Proposals proposeEmbeddingNorms(const ProposalContext &context);

/// From every nn.arg_max of a matmul's result, or of scalar ops after it: both.
Proposals proposeArgMaxes(const ProposalContext &context);

/// Disjoint sets of elementwise and index ops that no other family takes, as large as possible, whose results
/// have one shape. Cheap ops with other readers are cloned; expensive ones are never computed twice.
Proposals proposePointwise(const ProposalContext &context);

/// Of disjoint groups and single ops those that are small, have one shape and could run at one time, together:
/// candidates of one kernel each that hold two or more of `candidates`. Elementwise groups of another family
/// of `context.found` are left as they are.
std::vector<Candidate> joinSmallGroups(const ProposalContext &context, llvm::ArrayRef<Candidate> candidates);

/// From every nn.attention and nn.linear_attention: the transpose and the reshape that follow it, which would
/// be a copy.
Proposals proposeAttentionLayouts(const ProposalContext &context);

/// From every nn.attention that reads nn.concat(past, new): the rotations and the writes into the cache.
Proposals proposeCacheWrites(const ProposalContext &context);

/// From every nn.matmul of quantised operands: the matmul with the ops that decode them.
Proposals proposeScaledMatmuls(const ProposalContext &context);

/// From every nn.attention whose keys or values are decoded from codes: the attention with the ops that
/// decode them.
Proposals proposeScaledAttentions(const ProposalContext &context);

/// From every nn.attention whose keys and values are gathered by pages: the attention, which reads them where
/// they lie, with the gathers, what decodes codes, and the ops of a mask that is bounds of the keys.
Proposals proposePagedAttentions(const ProposalContext &context);

/// From every nn.attention with a mask that says no more than which keys are the first and the last that each
/// query looks at: the attention, which reads no other keys, with the ops that make the mask.
Proposals proposeBoundedAttentions(const ProposalContext &context);

/// From every nn.attention with a sink: the attention with the ops that put the sink in front of its keys.
Proposals proposeSinkAttentions(const ProposalContext &context);

/// From every nn.attention with large heads whose queries or keys lie in two tensors: the attention with the
/// ops that would put them together.
Proposals proposeLatentAttentions(const ProposalContext &context);
/// These ops: nn.concat along the columns. Empty where heads are small.
llvm::SmallVector<mlir::Operation *> joiningOps(nn::AttentionOp attention);
/// Whether a schedule of the oracle takes an attention with large heads as it stands.
KeepsAttention keepsLatentAttention(ScheduleOracle &oracle);

/// The ops that make an operand of nn.matmul from a quantised one: nn.dequantize, or, for an integer matmul,
/// the widening cast and the subtraction of the zero point. In block order; empty if `operand` is not made
/// so.
llvm::SmallVector<mlir::Operation *> decodingOps(mlir::Value operand);
/// The same of keys or values.
llvm::SmallVector<mlir::Operation *> decodingOpsOfKeys(mlir::Value operand);
/// The quantised value that `operand` is decoded from, or `operand` itself.
mlir::Value encodedOperand(mlir::Value operand);

/// The candidate with what the kernels of its matmuls and attentions do as they read operands (decode codes,
/// find the keys that a mask leaves): as members where they have no other reader, else as clones. The
/// candidate itself if there is nothing.
Candidate withDecoding(const Candidate &candidate);

/// The matmuls of one input by weights, with their biases, side by side.
Proposals proposeMatmuls(const ProposalContext &context);

/// What belongs to a matmul: the scales of an integer one (a cast and a multiplication, whose factor may be
/// the product of two scales, and a cast to the model's type), a bias, with a cast where it is added in f32,
/// and an activation that gates nothing.
llvm::SmallVector<mlir::Operation *> matmulEpilogue(nn::MatmulOp matmul);

/// Lets the candidate absorb those of `found` that lie within it, but for parts of others that do.
void absorbWithin(Candidate &candidate, llvm::ArrayRef<Candidate> found);

/// The products of routed rows, with what follows them up to the sum over the slots.
Proposals proposeExperts(const ProposalContext &context);

/// From every nn.top_k: the softmax before it, the scores taken, and what makes weights of them.
Proposals proposeRouters(const ProposalContext &context);

/// Whether ranks add up what is normalised: their kernel takes the norm along at no cost, which one GPU by
/// itself does not measure.
bool isOfSumOverRanks(mlir::Operation *norm);

/// Norms with the matmuls that read them, for few rows.
Proposals proposeNormMatmuls(const ProposalContext &context);

/// The matmuls of queries, keys and values with the rotations and cache writes of their results, and with the
/// norm before them.
Proposals proposeQkvRopes(const ProposalContext &context);

/// From every nn.attention that reads nn.concat(past, new): the rotations and the writes into the cache, with
/// the attention and the order in which it writes its result.
Proposals proposeRopeAttentions(const ProposalContext &context);

/// From every nn.softmax and nn.reduce along the last dim: the elementwise ops that compute its rows, and with
/// those after it and the other reductions of the same rows.
Proposals proposeReductions(const ProposalContext &context);

/// Norms of one value.
Proposals proposeSiblingNorms(const ProposalContext &context);

/// From every norm: the scalar ops that follow it, as far as they are the only readers. Each length is a
/// candidate.
Proposals proposeNormEpilogues(const ProposalContext &context);

/// add_norm of a norm whose result is added to a residual.
std::vector<Candidate> proposeBranchNorms(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

/// From the rotation's operand back to a norm, through views and casts with no other reader. Empty if there
/// is none.
llvm::SmallVector<mlir::Operation *> normBefore(nn::RopeOp rope);

/// The norm that alone reads the rotation, if there is one.
mlir::Operation *normAfter(nn::RopeOp rope);
/// The rotation that computes `value`, with or without a norm after it.
nn::RopeOp producingRotation(mlir::Value value);

/// The rotations of one attention's queries and keys, and single ones, with norms before views and casts or
/// after the rotation.
std::vector<Candidate> proposeRopes(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

/// Pairs of rotations by the same angles, with the norms in front of them, that no candidate of `found` has
/// together.
std::vector<Candidate> proposeRotationPairs(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

/// Gated pairs of integer matmuls, with the scales of each.
std::vector<Candidate> proposeGates(const ProposalContext &context, llvm::ArrayRef<Candidate> found);

struct Proposer {
  llvm::StringRef family;
  Proposals (*propose)(const ProposalContext &);
  /// A family for what others leave: it is missed only where the root stays alone.
  bool isForRest = false;
};
/// In the order in which they are asked.
llvm::ArrayRef<Proposer> proposers();

} // namespace fusion
