// Reductions, norms, matrix products, attention, quantisation and collectives.
#ifndef FUSION_NN_COMPUTE
#define FUSION_NN_COMPUTE

include "ir/dialect/NNBase.td"

def NN_ReduceOp : NN_Op<"reduce", [NN_ShardRule]> {
  let summary = "mean, sum, max, min, prod, sum_square, l1 or l2 over `axes`";
  let description = [{
    Accumulates in f32 (integers in their own type) and rounds once. Max and min of floats keep NaN.

    ```mlir
    %y = nn.reduce %x {kind = "mean", axes = array<i64: 1>, keepdims = true}
       : (tensor<?x128xf32>) -> tensor<?x1xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, StrAttr:$kind, DenseI64ArrayAttr:$axes, BoolAttr:$keepdims);
  let results = (outs NN_Tensor:$y);
}

def NN_ArgMaxOp : NN_Op<"arg_max", [NN_ShardRule]> {
  let summary = "index of the first largest element along `axis`";
  let description = [{
    ```mlir
    %i = nn.arg_max %x {axis = 1 : i64, keepdims = false} : (tensor<?x256xf32>) -> tensor<?xi64>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, I64Attr:$axis, BoolAttr:$keepdims);
  let results = (outs NN_IntTensor:$y);
}

def NN_TopKOp : NN_Op<"top_k"> {
  let summary = "indices of the `k` largest elements along `axis`, the largest first";
  let description = [{
    A NaN is larger than all numbers; equal elements keep their order. `k` is one dim, at most that of the
    axis. `nn.gather_elements` gives the values.

    ```mlir
    %i = nn.top_k %x {axis = 1 : i64, k = [8]} : (tensor<?x128xf32>) -> tensor<?x8xi64>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, I64Attr:$axis, NN_DimsAttr:$k);
  let results = (outs NN_IntTensor:$y);
}

def NN_LimitGroupsOp : NN_Op<"limit_groups"> {
  let summary = "elements of the best groups of each row; `other` in the place of all others";
  let description = [{
    The last dim, which is static, holds `groups` groups of neighbours. A group's score is the sum of its
    `summed` largest elements, rounded once; the `kept` groups with the largest scores keep their elements.
    Scores and elements are ordered as `nn.top_k` orders them. It limits the experts that a router chooses
    from: DeepSeek-V3 scores a group by its best two, DeepSeek-V2 by its best one.

    ```mlir
    %y = nn.limit_groups %x {groups = 8 : i64, kept = 4 : i64, summed = 2 : i64, other = 0xFF800000 : f32}
       : (tensor<?x256xf32>) -> tensor<?x256xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, I64Attr:$groups, I64Attr:$kept, I64Attr:$summed, F32Attr:$other);
  let results = (outs NN_FloatTensor:$y);
}

def NN_CumSumOp : NN_Op<"cumsum", [NN_ShardRule]> {
  let summary = "running sum along `axis`";
  let description = [{
    ```mlir
    %y = nn.cumsum %x {axis = 1 : i64, exclusive = false, reverse = false}
       : (tensor<?x?xi64>) -> tensor<?x?xi64>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, I64Attr:$axis, BoolAttr:$exclusive, BoolAttr:$reverse);
  let results = (outs NN_Tensor:$y);
}

def NN_SoftmaxOp : NN_Op<"softmax", [NN_ShardRule]> {
  let summary = "exp(x - max) / sum along `axis`; with `log`, its logarithm";
  let description = [{
    Computed in f32 and rounded once. A row of -inf gives NaN.

    ```mlir
    %y = nn.softmax %x {axis = 3 : i64} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$log);
  let results = (outs NN_FloatTensor:$y);
}

def NN_RmsNormOp : NN_Op<"rms_norm", [NN_ShardRule, NN_Norm]> {
  let summary = "root-mean-square norm over the last dim";
  let description = [{
    With all arithmetic in f32, S the type `scale_in` and R the result's element type:
    `n = x * (1 / sqrt(mean(x * x) + eps))`, `y = R(S(n) * S(w + weight_bias))`, where `T(v)` rounds v to T.
    `scale_in` is the weight's element type if absent. Llama: `scale_in` is the model's type; Gemma and
    OLMo 2: f32. `weight_bias = 1.0` marks a weight stored without its 1.

    ```mlir
    %y = nn.rms_norm %x, %w {eps = 1.0e-6 : f32, weight_bias = 1.0 : f32, scale_in = f32}
       : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, NN_FloatTensor:$weight, F32Attr:$eps,
                       DefaultValuedAttr<F32Attr, "0.0f">:$weight_bias, OptionalAttr<TypeAttr>:$scale_in);
  let results = (outs NN_FloatTensor:$y);
  let extraClassDeclaration = [{
    /// Element type in which the normalised value meets the weight.
    ::mlir::Type scaleType();
  }];
}

def NN_LayerNormOp : NN_Op<"layer_norm", [NN_ShardRule, NN_Norm]> {
  let summary = "layer norm over the last dim";
  let description = [{
    With all arithmetic in f32, `n = (x - mean) * (1 / sqrt(mean((x - mean)^2) + eps))`,
    `y = R(S(S(n) * S(w)) + S(b))` with S and R as in `nn.rms_norm`; `scale_in` is the weight's element type
    if absent. The bias may be missing.

    ```mlir
    %y = nn.layer_norm %x, %w, %b {eps = 1.0e-5 : f32}
       : (tensor<?x128xf32>, tensor<128xf32>, tensor<128xf32>) -> tensor<?x128xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, NN_FloatTensor:$weight, Optional<NN_FloatTensor>:$bias,
                       F32Attr:$eps, OptionalAttr<TypeAttr>:$scale_in);
  let results = (outs NN_FloatTensor:$y);
  let extraClassDeclaration = [{
    /// Element type in which the normalised value meets the weight.
    ::mlir::Type scaleType();
  }];
}

def NN_MatmulOp : NN_Op<"matmul", [NN_ShardRule]> {
  let summary = "matrix product of the last two dims, leading dims broadcast";
  let description = [{
    `transpose_a` / `transpose_b` swap the operand's last two dims first. A rank-1 operand is a row (left) or
    a column (right), and its dim is not in the result. Accumulates in f32 (i32 for 8-bit integers), rounds
    once.

    ```mlir
    %y = nn.matmul %x, %w {transpose_b = true}
       : (tensor<?x?x128xf16>, tensor<256x128xf16>) -> tensor<?x?x256xf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$a, NN_Tensor:$b, DefaultValuedAttr<BoolAttr, "false">:$transpose_a,
                       DefaultValuedAttr<BoolAttr, "false">:$transpose_b);
  let results = (outs NN_Tensor:$y);
}

def NN_RopeOp : NN_Op<"rope", [NN_ShardRule, NN_Costly]> {
  let summary = "rotary position embedding of the last dim";
  let description = [{
    Rotates the first `rotary_dim` elements of the last dim and copies the others. With h = rotary_dim / 2,
    pair i is elements (i, i + h), or (2i, 2i + 1) if `interleaved`. Each of the two products and their sum
    round to the type C, which is `compute` or else the element type of x:
    `first = C(C(a * cos) - C(b * sin))`, `second = C(C(b * cos) + C(a * sin))`; then both round to the result
    type. `cos` and `sin` broadcast against x but for their last dim, which is h (an entry for each pair)
    or rotary_dim (an entry for each element, in the elements' order).

    ```mlir
    %y = nn.rope %q, %cos, %sin {interleaved = false, rotary_dim = 32 : i64}
       : (tensor<?x4x?x32xf16>, tensor<1x1x?x32xf16>, tensor<1x1x?x32xf16>) -> tensor<?x4x?x32xf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, NN_FloatTensor:$cos, NN_FloatTensor:$sin, BoolAttr:$interleaved,
                       I64Attr:$rotary_dim, OptionalAttr<TypeAttr>:$compute);
  let results = (outs NN_FloatTensor:$y);
  let extraClassDeclaration = [{
    /// Element type to which the products and the sum round.
    ::mlir::Type computeType();
  }];
}

def NN_AttentionOp : NN_Op<"attention", [NN_ShardRule]> {
  let summary = "softmax(scale * q kᵀ, capped and masked) v, with grouped key/value heads";
  let description = [{
    q is [batch, heads, queries, d], k [batch, kv_heads, keys, d], v [batch, kv_heads, keys, dv]; heads is a
    multiple of kv_heads, and query head i reads key/value head i / (heads / kv_heads). Computed in f32 and
    rounded once at the end: `s = scale * q·k`; if `softcap` > 0, `s = softcap * tanh(s / softcap)`. A float
    mask is added; an i1 mask keeps the keys where it is true. `causal` keeps key j for query i if
    j <= i + (keys - queries), `window` > 0 if j > i + (keys - queries) - window. A row without any kept key
    gives 0 if `zero_masked_rows`, else NaN (a mask of large finite numbers keeps all keys).

    ```mlir
    %y = nn.attention %q, %k, %v, %mask {scale = 0.176776692 : f32, causal = false, zero_masked_rows = true}
       : (tensor<?x4x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x2x?x32xf16>, tensor<?x1x?x?xi1>)
         -> tensor<?x4x?x32xf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$q, NN_FloatTensor:$k, NN_FloatTensor:$v, Optional<NN_Tensor>:$mask,
                       F32Attr:$scale, DefaultValuedAttr<BoolAttr, "false">:$causal,
                       DefaultValuedAttr<F32Attr, "0.0f">:$softcap, DefaultValuedAttr<I64Attr, "0">:$window,
                       DefaultValuedAttr<BoolAttr, "false">:$zero_masked_rows);
  let results = (outs NN_FloatTensor:$y);
}

def NN_ExpertMatmulOp : NN_Op<"expert_matmul", [NN_ShardRule]> {
  let summary = "each row times the matrix of the expert that `index` names";
  let description = [{
    `index`, [rows..., slots], names the experts of each row. `x` is [rows..., slots, k], or [rows..., 1, k]
    if all slots of a row read the same elements; `w` is [experts, k, n], or [experts, n, k] with
    `transpose_w`. The result is [rows..., slots, n]: `y[r, s] = x[r, s] · w[index[r, s]]`, accumulated in f32
    and rounded once. A negative index counts from the end. On the device an index out of range reads the
    nearest valid one.

    ```mlir
    %y = nn.expert_matmul %x, %w, %index {transpose_w = true}
       : (tensor<?x1x2048xbf16>, tensor<128x1536x2048xbf16>, tensor<?x8xi64>) -> tensor<?x8x1536xbf16>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, NN_FloatTensor:$w, NN_IntTensor:$index,
                       DefaultValuedAttr<BoolAttr, "false">:$transpose_w);
  let results = (outs NN_FloatTensor:$y);
}

def NN_LinearAttentionOp : NN_Op<"linear_attention", [AttrSizedOperandSegments, NN_ShardRule]> {
  let summary = "attention by a recurrent state: linear, gated, delta or gated delta rule";
  let description = [{
    q is [batch, q_heads, tokens, d], k [batch, k_heads, tokens, d], v [batch, heads, tokens, dv], state
    [batch, heads, d, dv]. decay is the logarithm of the state's factor: [batch, heads, tokens, 1] or
    [batch, heads, tokens, d]. beta is [batch, heads or 1, tokens, 1]. One of q_heads and heads is a multiple
    of the other, and heads is a multiple of k_heads; neighbouring heads share what there are fewer of. For
    each token t, with all arithmetic in f32:

    `S = exp(decay_t) * S` (with decay), `S = S + k_t ⊗ u_t` with `u_t = v_t`, or, with beta,
    `u_t = beta_t * (v_t - k_tᵀ S)`; `y_t = scale * q_tᵀ S`.

    The result is [batch, max(q_heads, heads), tokens, dv]; result 1 is the state after the last token. Each
    is rounded once.

    ```mlir
    %y, %s = nn.linear_attention %q, %k, %v, %state, %decay, %beta
        {scale = 0.0883883461 : f32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>}
      : (tensor<?x32x?x128xbf16>, tensor<?x16x?x128xbf16>, tensor<?x32x?x128xbf16>, tensor<?x32x128x128xf32>,
         tensor<?x32x?x1xf32>, tensor<?x32x?x1xbf16>) -> (tensor<?x32x?x128xbf16>, tensor<?x32x128x128xf32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$q, NN_FloatTensor:$k, NN_FloatTensor:$v, NN_FloatTensor:$state,
                       Optional<NN_FloatTensor>:$decay, Optional<NN_FloatTensor>:$beta, F32Attr:$scale);
  let results = (outs NN_FloatTensor:$y, NN_FloatTensor:$new_state);
}

def NN_QuantizeOp : NN_Op<"quantize", [NN_ShardRule, NN_Quantize, NN_Costly]> {
  let summary = "saturate(round(x / scale) + zero_point)";
  let description = [{
    Divides in f32 and rounds to nearest even. An f8 result is the nearest f8 value, and has no zero point.
    `scale` is a scalar, or one entry per index of `axis`, or, with `block_size` > 0, one
    entry for every block of that many elements along `axis`.

    ```mlir
    %q = nn.quantize %x, %scale {axis = 1 : i64} : (tensor<?x128xbf16>, tensor<f32>) -> tensor<?x128xf8E4M3FN>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, NN_FloatTensor:$scale, Optional<NN_Tensor>:$zero_point,
                       DefaultValuedAttr<I64Attr, "-1">:$axis, DefaultValuedAttr<I64Attr, "0">:$block_size);
  let results = (outs NN_Tensor:$y);
}

def NN_DequantizeOp : NN_Op<"dequantize", [NN_ShardRule, NN_Costly]> {
  let summary = "(q - zero_point) * scale";
  let description = [{
    Computed in f32 and rounded once to the result's element type; `scale`, `axis`, `block_size` as in
    `nn.quantize`. With `unrounded` the graph does not say that it is rounded, as of the weights of MatMulNBits:
    a kernel of the matmul that reads it may multiply with f32 instead.

    ```mlir
    %x = nn.dequantize %q, %scale : (tensor<?x128xi8>, tensor<f32>) -> tensor<?x128xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_FloatTensor:$scale, Optional<NN_Tensor>:$zero_point,
                       DefaultValuedAttr<I64Attr, "-1">:$axis, DefaultValuedAttr<I64Attr, "0">:$block_size,
                       DefaultValuedAttr<BoolAttr, "false">:$unrounded);
  let results = (outs NN_FloatTensor:$y);
}

def NN_DynamicQuantizeOp : NN_Op<"dynamic_quantize", [NN_Quantize]> {
  let summary = "quantise with a scale from the data: max|x| / largest value of the type";
  let description = [{
    One scale for every group of `group_size` elements of the last dim; 0 means the whole last dim (per
    token). `scale = f32(max|x|) / limit`, limit 448 for f8E4M3FN, 57344 for f8E5M2, 127 for i8; a group of
    zeros has scale 1. `q = saturate(round(x / scale))`.

    ```mlir
    %q, %s = nn.dynamic_quantize %x {group_size = 128 : i64}
       : (tensor<?x4096xbf16>) -> (tensor<?x4096xf8E4M3FN>, tensor<?x32xf32>)
    ```
  }];
  let arguments = (ins NN_FloatTensor:$x, DefaultValuedAttr<I64Attr, "0">:$group_size);
  let results = (outs NN_Tensor:$y, NN_FloatTensor:$scale);
}

def NN_AllReduceOp : NN_Op<"all_reduce"> {
  let summary = "the sum over the ranks along the mesh axis `group`";
  let description = [{
    Adds in f32 in the ranks' order and rounds once. The function's `nn.mesh` says how many ranks the axis
    has; without it there is one.

    ```mlir
    %y = nn.all_reduce %x {group = "tp"} : (tensor<?x4096xbf16>) -> tensor<?x4096xbf16>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, DefaultValuedStrAttr<StrAttr, "tp">:$group);
  let results = (outs NN_Tensor:$y);
}

#endif
