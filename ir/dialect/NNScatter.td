// Scattered sums and extremes. In a file of its own: few need its class, which is in Scatter.h.
#ifndef FUSION_NN_SCATTER
#define FUSION_NN_SCATTER

include "ir/dialect/NNBase.td"

def NN_ScatterReduceOp : NN_Op<"scatter_reduce"> {
  let summary = "`x` with all updates of a place added, multiplied, or the least or largest of them";
  let description = [{
    `indices` address leading dims of `x` as in nn.scatter_nd, and may repeat. `kind` is add, mul, min or max.
    Each element of `x` meets its updates in their order, so that every run gives the same bits: in f32 for
    floats narrower than that, rounded once, else in its own type; integers wrap. Min and max keep NaN. A
    negative index counts from the end; an update with an index out of range is left out.

    ```mlir
    %y = nn.scatter_reduce %x, %i, %u {kind = "add"}
       : (tensor<?x64xf32>, tensor<?x1xi64>, tensor<?x64xf32>) -> tensor<?x64xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$x, NN_IntTensor:$indices, NN_Tensor:$updates, StrAttr:$kind);
  let results = (outs NN_Tensor:$y);
}

#endif
