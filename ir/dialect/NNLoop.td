// Repetition. In a file of its own: few need its class, which is in Loop.h.
#ifndef FUSION_NN_LOOP
#define FUSION_NN_LOOP

include "ir/dialect/NNBase.td"
include "mlir/IR/SymbolInterfaces.td"

def NN_LoopOp : NN_Op<"loop", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a function applied again and again to what it returns";
  let description = [{
    The first operands, one for each result, are the state; the others stay the same. The function `body`
    takes all of them and returns the next state, of the same types and shapes. It is applied `steps` times,
    and the results are the last state. With `conditional`, the first value of the state is an i1 scalar, and
    the function is applied only as long as that holds; without `steps`, as often as it holds.

    The dims of the body's arguments name the symbols of the function around. A stack of one entry a step is a
    value of the state that the body extends by `nn.cache_write`; `nn.storage` and `nn.alias` on argument and
    result say that this is done in place.

    ```mlir
    %last, %all = nn.loop %zero, %stack, %x {body = @step, steps = ["seq"]}
        : (tensor<2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>) -> (tensor<2x8xf32>, tensor<?x2x8xf32>)
    ```
  }];
  let arguments = (ins Variadic<NN_Tensor>:$values, FlatSymbolRefAttr:$body, OptionalAttr<NN_DimsAttr>:$steps,
                       DefaultValuedAttr<BoolAttr, "false">:$conditional);
  let results = (outs Variadic<NN_Tensor>:$state);
  let checks = "if (::llvm::failed(verifyForm())) return ::llvm::failure();";
  let extraClassDeclaration = [{
    /// The function that is applied; null where the module around has none of that name.
    ::mlir::func::FuncOp bodyFunction();
    ::llvm::LogicalResult verifyForm();
  }];
}

#endif
