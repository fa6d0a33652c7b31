#ifndef FUSION_NN_INTERFACES
#define FUSION_NN_INTERFACES

include "mlir/IR/OpBase.td"

def NN_ShapeInterface : OpInterface<"ShapeInference"> {
  let cppNamespace = "::fusion::nn";
  let description = [{
    The one shape function of an op. It works on symbolic dims, so it serves the verifier, builders, the
    importer and the memory plan alike.
  }];
  let methods = [InterfaceMethod<
    "Sets the shape of every result from the shapes of the operands; fails with a reason.",
    "::llvm::LogicalResult", "inferShapes", (ins "::fusion::nn::ShapeContext &":$context)>];
}

#endif
