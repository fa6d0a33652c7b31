// The passes of the compiler, in the order of the pipeline.
#ifndef FUSION_PASSES
#define FUSION_PASSES

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// Normalise
//===----------------------------------------------------------------------===//

def FoldConstants : Pass<"nn-fold-constants", "::mlir::ModuleOp"> {
  let summary = "evaluate ops whose operands are constants";
  let description = [{
    Runs the reference on every op whose operands are all `nn.constant`, if its result is no larger than
    `max-elements`. `nn.weight` is not read: its bytes stay in the file. An expand stays, since its users
    broadcast. The `nn.dequantize` of a matmul's operand stays, since the quantised operand has fewer bytes.
  }];
  let options = [Option<"maxElements", "max-elements", "int64_t", "65536",
                        "largest result, in elements, that becomes a constant">];
}

def Canonicalize : Pass<"nn-canonicalize", "::mlir::ModuleOp"> {
  let summary = "rewrite the spellings of different exporters to one";
  let description = [{
    Removes ops without effect, which types or symbolic shapes tell; composes views; turns powers into square
    and rsqrt; folds transposes into the matmuls that read them; moves reshapes that only merge leading dims
    behind matmuls and pointwise ops; writes heads apart into caches that hold them side by side; and sorts
    commutative operands, constants and weights last. Every rewrite is exact: same values, same rounding
    points.
  }];
}

def FoldPositions : Pass<"nn-fold-positions", "::mlir::ModuleOp"> {
  let summary = "decide comparisons of positions that do not depend on data";
  let description = [{
    Position ids and masks are arithmetic on iotas. A condition that holds at every index for all sizes, or
    at none, becomes a constant: for example that a new token sees its whole past.
  }];
}

//===----------------------------------------------------------------------===//
// Raise
//===----------------------------------------------------------------------===//

def RaiseNorm : Pass<"nn-raise-norm", "::mlir::ModuleOp"> {
  let summary = "decomposed RMS and layer norms become nn.rms_norm and nn.layer_norm";
  let description = [{
    The place of every rounding is kept: `scale_in` says in which type the normalised value meets the weight,
    `weight_bias` marks a weight that is stored without its 1. Where the graph computes statistics in f16 or
    bf16, they are f32 afterwards: fewer roundings, and squares are taken to be finite. Without `assume-finite`
    such a norm stays as it is.
  }];
  let options = [Option<"assumeFinite", "assume-finite", "bool", "true",
                        "assume that statistics in f16 and bf16 are finite, and compute them in f32">];
}

def RaiseActivation : Pass<"nn-raise-activation", "::mlir::ModuleOp"> {
  let summary = "decomposed gelu and silu become nn.gelu and nn.silu";
  let description = [{
    The named ops compute in f32 and round once; the decomposed ones also round in between.
  }];
}

def RaiseRope : Pass<"nn-raise-rope", "::mlir::ModuleOp"> {
  let summary = "decomposed rotary embeddings become nn.rope";
  let description = [{
    Recognises half and interleaved pairs, pairs that lie as halves afterwards, tables with an entry for each
    element or each pair, partial rotation, and casts around a rotation in f32. Rounding points are kept.
    Tokens beside those that rotate have cos 1 and sin 0 in longer tables; without `assume-finite` they are
    concatenated, since infinite ones times 0 are NaN.
  }];
  let options = [Option<"assumeFinite", "assume-finite", "bool", "true",
                        "assume that tokens beside those that rotate are finite">];
}

def RaiseSoftmax : Pass<"nn-raise-softmax", "::mlir::ModuleOp"> {
  let summary = "exp(x - max) over its sum, and its logarithm, become nn.softmax";
  let description = [{
    Only in f32, where it computes the same, and only where the largest is subtracted first: in narrower types each
    op rounds, and exp of x itself may overflow.
  }];
}

def RaiseAttention : Pass<"nn-raise-attention", "::mlir::ModuleOp"> {
  let summary = "softmax(scale * q kᵀ + mask) v becomes nn.attention";
  let description = [{
    Removes repeated key/value heads, also before an `nn.attention` of the graph. An additive mask becomes a
    boolean one only if it adds -inf where a condition fails: with large finite numbers a wholly masked row is
    an average. Without `assume-finite` attention stays as it is where its scores are taken to be finite, or
    to lie above the number that masks them.
  }];
  let options = [Option<"assumeFinite", "assume-finite", "bool", "true",
                        "assume that scores are finite and lie above the number that masks them">];
}

def RaiseExpertMatmul : Pass<"nn-raise-expert-matmul", "::mlir::ModuleOp"> {
  let summary = "matmul(x, w[index]) becomes nn.expert_matmul";
  let description = [{
    Separates rows and slots that were merged into one dim: `index` becomes [rows..., slots], `x` has one slot
    if all slots of a row read the same, and the ops up to the sum over slots work on [rows..., slots, n].
    Exact.
  }];
}

def RaiseGroupLimit : Pass<"nn-raise-group-limit", "::mlir::ModuleOp"> {
  let summary = "elements of the best groups, and a number elsewhere, become nn.limit_groups";
  let description = [{
    Matches `where(mask, x, other)` whose mask spreads over the elements of each group whether a `top_k` of
    the groups' scores found it: by comparing the places found with all, a scatter, or a one-hot. A score is
    the maximum of a group, or the sum of what a `top_k` of the group takes. Where all groups are kept, x
    itself is left. For f32. Exact.
  }];
}

def RaiseDenseExperts : Pass<"nn-raise-dense-experts", "::mlir::ModuleOp"> {
  let summary = "all experts on all rows, masked by equal(index, e), become nn.expert_matmul";
  let description = [{
    Matches the sum over all experts e of the expert's output times `sum(weights * (index == e))`. Afterwards
    each row goes only to the experts of its slots, over weights stacked along a new first dim. Leaving out
    experts of weight 0 assumes that they compute finite numbers; the others are added in f32 and rounded
    once. Without `assume-finite` nothing is changed.
  }];
  let options = [Option<"assumeFinite", "assume-finite", "bool", "true",
                        "assume that unchosen experts compute finite numbers">];
}

def StackWeights : Pass<"nn-stack-weights", "::mlir::ModuleOp"> {
  let summary = "a concatenation of weights becomes one weight in parts";
  let description = [{
    A concatenation of `nn.weight`s of one shape along their first dim, such as the experts of a layer,
    becomes one `nn.weight` with `part_paths` and `part_offsets`. The loader puts the parts side by side, and
    nothing runs. Exact.
  }];
}

def DecomposeAttention : Pass<"nn-decompose-attention", "::mlir::ModuleOp"> {
  let summary = "attention whose heads are too large for its kernels becomes matmuls and a softmax";
  let description = [{
    Latent attention over the compressed cache has heads of 576. The query heads that share a key/value head
    become the rows of one matmul. The softmax is rounded to the type of the values, as fused kernels do. Heads
    of a size that only a run knows, as attention among channels has them, are taken for large.
  }];
  let options = [Option<"largestHead", "largest-head", "int64_t", "256", "the largest head that stays">];
}

def UnpackGates : Pass<"nn-unpack-gates", "::mlir::ModuleOp"> {
  let summary = "a packed gate and up projection becomes two matmuls";
  let description = [{
    Where two parts of one matmul's columns meet in an elementwise op, each becomes a matmul with its part of
    the weight, so that one kernel can hold both accumulators and the gate. Weights are not copied: a part is
    a slice. Exact.
  }];
}

//===----------------------------------------------------------------------===//
// Shard
//===----------------------------------------------------------------------===//

def Shard : Pass<"nn-shard", "::mlir::ModuleOp"> {
  let summary = "one rank's graph of a tensor-parallel group";
  let description = [{
    Follows axes through the ops. The columns of a matmul over which another matmul sums are divided, with
    everything between the two (heads, their key/value caches, biases, scales), and `nn.all_reduce` adds the
    partial sums. Key/value heads are repeated if they are fewer than the ranks. A packed projection is taken
    apart first. For an RMS norm over all heads the ranks' sums of squares are added; experts are summed over
    their slots before the ranks' sums are.

    With `vocabulary`, the head's matmul is divided by columns, and so is its result; an embedding is divided
    by rows: each rank looks up the ids that it has, and adds zeros for the others. Whatever cannot be divided
    stays whole and leaves its reason.

    Shards of weights begin at a multiple of the symbol `tp_rank`, and only they are loaded. Divided arguments
    and results carry `nn.shard = [axis, shards]`, and the function `nn.mesh = {tp = N}`.
  }];
  let options = [Option<"ranks", "ranks", "int64_t", "1", "how many ranks share the graph">,
                 Option<"vocabulary", "vocabulary", "bool", "false",
                        "divide the embedding and the head too">];
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

def CacheInPlace : Pass<"nn-cache-in-place", "::mlir::ModuleOp"> {
  let summary = "caches are extended, and states replaced, in the buffer in which they lie";
  let description = [{
    A cache is an argument that an `nn.concat` extends to a result of the function. The argument gets
    `nn.storage`: the dims of its buffer, which has `capacity` positions along the concat's axis; the argument
    lies at the buffer's origin. The result gets `nn.alias`, the argument's number: it lies in the same
    buffer, and a kernel writes only what is new. No op changes. The buffer has no more room where an
    `nn.cache_write`, the argument's only reader, perhaps through reshapes, replaces rows of a known number of
    them, and where an argument is used only as the state of an `nn.linear_attention` whose new state is
    returned.
    Example: `%past: tensor<1x2x?x32xf16> {nn.storage = [1, 2, 64, 32]}`.
  }];
  let options = [Option<"capacity", "capacity", "int64_t", "0", "positions that a cache holds">];
}

#endif
