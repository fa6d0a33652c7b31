// The choice of a token. A file of its own, since few files need its class, which is in Sample.h.
#ifndef FUSION_NN_SAMPLE
#define FUSION_NN_SAMPLE

include "ir/dialect/NNBase.td"

def NN_SampleOp : NN_Op<"sample"> {
  let summary = "draws a place of each row of the last dim by the scores";
  let description = [{
    Place i has the probability softmax(scores / temperature)[i], taken among those that are kept: with
    `top_k` above 0 the `top_k` largest scores and those equal to the last of them; of these, with `top_p`
    below 1, the largest until their probabilities reach `top_p` together, and those equal to the last. A NaN
    is never drawn; 0 where there is nothing else.

    `seed` holds a key and a counter. Row r takes the first two words of Philox4x32-10 for that key and
    (counter, r) as a 64-bit fraction u of 1 and draws the first place at which the sum of weights, in the
    order of places, exceeds u of their total. All of that rounds in one way, so that the same scores give the same
    places wherever they are computed: a score lies d = floor(f32(f32(max - score) * f32(2^16 log2(e) /
    temperature))) below the largest, and its weight is the integer part of m * 2^(16 - q), where q = d / 2^16
    rounded down, f the fraction that remains, and m = 2^23 * 2^(1 - f) by a polynomial of the sixth degree in
    f - 1/2 in f32, whose steps are fused multiply-adds; 0 from d = 40 * 2^16 on.

    ```mlir
    %i = nn.sample %x, %seed {temperature = 0.8 : f32, top_k = 50 : i64, top_p = 0.9 : f64}
       : (tensor<?x256xf16>, tensor<2xi64>) -> tensor<?xi64>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$scores, NN_IntTensor:$seed, F32Attr:$temperature,
                       DefaultValuedAttr<I64Attr, "0">:$top_k, DefaultValuedAttr<F64Attr, "1.0">:$top_p);
  let results = (outs NN_IntTensor:$y);
  let extraClassDeclaration = [{
    /// 2^16 log2(e) / temperature.
    float scale();
    /// `top_p` of 2^64; 0: all.
    uint64_t share();
  }];
}

#endif
