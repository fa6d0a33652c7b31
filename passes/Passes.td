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
    broadcast, and so does the `nn.dequantize` of a matmul's operand, which is read in fewer bytes as it is.
  }];
  let options = [Option<"maxElements", "max-elements", "int64_t", "65536",
                        "largest result, in elements, that becomes a constant">];
}

def Canonicalize : Pass<"nn-canonicalize", "::mlir::ModuleOp"> {
  let summary = "one spelling for what exporters spell in many ways";
  let description = [{
    Drops ops that do nothing (by symbolic shapes where types do not tell), composes views, turns powers into
    square and rsqrt, gives transposes to the matmul that reads them, moves reshapes that only merge leading
    dims after matmuls and pointwise ops, and sorts commutative operands: constants and weights right. Every
    rewrite is exact: same values, same rounding points.
  }];
}

def FoldPositions : Pass<"nn-fold-positions", "::mlir::ModuleOp"> {
  let summary = "decide comparisons of positions that do not depend on data";
  let description = [{
    Position ids and masks are arithmetic on iotas. A condition that holds, or fails, at every index for all
    sizes becomes a constant: that positions are consecutive, that a new token sees its whole past.
  }];
}

//===----------------------------------------------------------------------===//
// Raise
//===----------------------------------------------------------------------===//

def RaiseNorm : Pass<"nn-raise-norm", "::mlir::ModuleOp"> {
  let summary = "decomposed RMS and layer norms become nn.rms_norm and nn.layer_norm";
  let description = [{
    The place of every rounding is kept: `scale_in` says in which type the normalised value meets the weight,
    `weight_bias` marks a weight that is stored without its 1. A norm whose statistics are not f32 stays as it
    is.
  }];
}

def RaiseActivation : Pass<"nn-raise-activation", "::mlir::ModuleOp"> {
  let summary = "decomposed gelu and silu become nn.gelu and nn.silu";
  let description = [{
    The named ops compute in f32 and round once, where the decomposed ones round in between.
  }];
}

def RaiseRope : Pass<"nn-raise-rope", "::mlir::ModuleOp"> {
  let summary = "decomposed rotary embeddings become nn.rope";
  let description = [{
    Half and interleaved pairs, tables of one entry an element or a pair, partial rotation, and the casts
    around a rotation in f32. Rounding points are kept.
  }];
}

def RaiseAttention : Pass<"nn-raise-attention", "::mlir::ModuleOp"> {
  let summary = "softmax(scale * q kᵀ + mask) v becomes nn.attention";
  let description = [{
    Repeated key/value heads are removed, for an `nn.attention` that exists already too. An additive mask
    stays one unless it adds -inf where a condition fails: large finite numbers give a wholly masked row an
    average.
  }];
}

def RaiseExpertMatmul : Pass<"nn-raise-expert-matmul", "::mlir::ModuleOp"> {
  let summary = "matmul(x, w[index]) becomes nn.expert_matmul";
  let description = [{
    Where rows and slots were merged into one dim, they are apart afterwards: `index` is [rows..., slots], `x`
    has one slot where all slots of a row read the same, and what follows up to the sum over slots works on
    [rows..., slots, n]. Exact.
  }];
}

def RaiseDenseExperts : Pass<"nn-raise-dense-experts", "::mlir::ModuleOp"> {
  let summary = "all experts on all rows, masked by equal(index, e), become nn.expert_matmul";
  let description = [{
    The outputs of the experts times `sum(weights * (index == e))`, added up over all experts that `index` can
    name: the rows go to the experts of their slots instead, over weights stacked along a new first dim.
    Experts of weight 0 are left out, which takes what they compute for finite; the others are added up in f32
    and rounded once. Without `assume-finite` nothing is changed.
  }];
  let options = [Option<"assumeFinite", "assume-finite", "bool", "true", "take what unchosen experts compute for finite">];
}

def StackWeights : Pass<"nn-stack-weights", "::mlir::ModuleOp"> {
  let summary = "weights one after another become one weight in parts";
  let description = [{
    A concatenation of equal `nn.weight` along their first dim, the experts of a layer, is one `nn.weight`
    with `part_paths` and `part_offsets`: the loader puts the parts side by side, and nothing runs. Exact.
  }];
}

def DecomposeAttention : Pass<"nn-decompose-attention", "::mlir::ModuleOp"> {
  let summary = "attention with heads larger than its kernels take becomes matmuls and a softmax";
  let description = [{
    Latent attention over the compressed cache has heads of 576. The query heads that read one key/value head
    are the rows of one matmul. The shares of the keys are rounded to the type of the values, as fused kernels
    do.
  }];
  let options = [Option<"largestHead", "largest-head", "int64_t", "256", "the largest head that stays">];
}

def UnpackGates : Pass<"nn-unpack-gates", "::mlir::ModuleOp"> {
  let summary = "a packed gate and up projection becomes two products";
  let description = [{
    Where the parts of one product's columns meet again in one elementwise op, each becomes a product by its
    part of the weight, so that one kernel can hold both sums and the gate. Weights are not moved: a part is a
    slice. Exact.
  }];
}

//===----------------------------------------------------------------------===//
// Shard
//===----------------------------------------------------------------------===//

def Shard : Pass<"nn-shard", "::mlir::ModuleOp"> {
  let summary = "one rank's graph of a tensor-parallel group";
  let description = [{
    Follows axes through the ops: the columns of a product that another product sums over are divided, with
    all that lies between (heads, their key/value caches, biases, scales), and the partial sums are added by
    `nn.all_reduce`. Key/value heads fewer than ranks are repeated. A packed projection is taken apart first.
    An RMS norm over all heads adds up the ranks' sums of squares; experts are summed over their slots before
    ranks add up. With `vocabulary`, a head's columns are divided as the result is, and an embedding by rows:
    a rank looks up the ids that it has, and the sum with the others' zeros is the row. What cannot be divided
    stays whole and leaves its reason. Shards of weights begin at a multiple of the symbol `tp_rank`: nothing
    else of them is loaded; divided arguments and results carry `nn.shard = [axis, shards]`, the function
    `nn.mesh = {tp = N}`.
  }];
  let options = [Option<"ranks", "ranks", "int64_t", "1", "how many ranks share the graph">,
                 Option<"vocabulary", "vocabulary", "bool", "false", "divide the embedding and the head too">];
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

def CacheInPlace : Pass<"nn-cache-in-place", "::mlir::ModuleOp"> {
  let summary = "caches that grow by concat(past, new) are extended in a buffer with room, states replaced in theirs";
  let description = [{
    An argument that an `nn.concat` extends, whose result the function returns, gets `nn.storage`: the dims of
    a buffer with `capacity` positions along the concat's axis, in whose front corner it lies. The result gets
    `nn.alias`, the argument's number: it lies in the same buffer, and a kernel writes what is new. No op
    changes. The same for an argument that is the state of an `nn.linear_attention` and nothing else, whose
    new state is returned; its buffer has no more room.
    Example: `%past: tensor<1x2x?x32xf16> {nn.storage = [1, 2, 64, 32]}`.
  }];
  let options = [Option<"capacity", "capacity", "int64_t", "0", "positions that a cache holds">];
}

#endif
