// The `fusion` dialect: groups of nn ops that become one kernel.
#ifndef FUSION_FUSION_OPS
#define FUSION_FUSION_OPS

include "ir/dialect/NNBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

def Fusion_Dialect : Dialect {
  let name = "fusion";
  let cppNamespace = "::fusion";
  let summary = "Regions of a graph that run as one kernel";
  let description = [{
    A fusion is a region, and its meaning is its body. Running a group on the CPU is running its body;
    removing it is inlining it; checking its kernel is comparing it with the body.
  }];
}

def Fusion_GroupOp : Op<Fusion_Dialect, "group", [IsolatedFromAbove, SingleBlock, RecursiveMemoryEffects,
                                                  RecursivelySpeculatable]> {
  let summary = "ops that run as one kernel";
  let description = [{
    `pattern` names the fusion that made the group, `schedule` the kernel family that takes it. The results
    are what `fusion.yield` names. Constant-like operands are cloned into the body.

    ```mlir
    %norm, %sum = fusion.group "add_norm" schedule "row" (%a = %x, %b = %residual, %w = %weight)
        : (tensor<?x128xbf16>, tensor<?x128xbf16>, tensor<128xbf16>)
          -> (tensor<?x128xbf16>, tensor<?x128xbf16>) {
      %0 = nn.add %a, %b : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
      %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32}
         : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
      fusion.yield %1, %0 : tensor<?x128xbf16>, tensor<?x128xbf16>
    }
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inputs, StrAttr:$pattern, StrAttr:$schedule);
  let results = (outs Variadic<NN_Tensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Fusion_YieldOp : Op<Fusion_Dialect, "yield", [Pure, Terminator, ReturnLike, HasParent<"GroupOp">]> {
  let summary = "names the results of a group";
  let description = [{
    ```mlir
    fusion.yield %norm : tensor<?x128xbf16>
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

#endif
