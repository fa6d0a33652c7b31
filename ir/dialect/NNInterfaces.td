// What ops say about themselves. Passes, patterns and schedules ask these, and name single ops only where one
// op is meant.
#ifndef FUSION_NN_INTERFACES
#define FUSION_NN_INTERFACES

include "mlir/IR/OpBase.td"

def NN_ShapeInterface : OpInterface<"ShapeInference"> {
  let cppNamespace = "::fusion::nn";
  let description = [{
    The op's only shape function. It works on symbolic dims, so that the verifier, builders, the importer and
    the memory plan all use it.
  }];
  let methods = [InterfaceMethod<
    "Sets the shape of every result from the shapes of the operands; fails with a reason.",
    "::llvm::LogicalResult", "inferShapes", (ins "::fusion::nn::ShapeContext &":$context)>];
}

def NN_Norm : OpInterface<"Norm"> {
  let cppNamespace = "::fusion::nn";
  let description = [{
    Normalises its first operand over the last dim. The other operands are the parameters: vectors along that
    dim.
  }];
  let methods = [
    InterfaceMethod<"What is normalised.", "::mlir::Value", "getX">,
    InterfaceMethod<"The weight and, where there is one, the bias.", "::mlir::OperandRange", "getParameters",
                    (ins), "", [{ return $_op->getOperands().drop_front(); }]>,
    InterfaceMethod<"What is added under the root.", "::llvm::APFloat", "getEps">,
    InterfaceMethod<"Element type in which the normalised value meets the weight.", "::mlir::Type",
                    "scaleType">,
  ];
}

def NN_Quantize : OpInterface<"Quantize"> {
  let cppNamespace = "::fusion::nn";
  let description = [{
    Quantises its first operand; result 0 holds the quantised values. A dynamic quantisation computes the
    scales from the data and returns them; a static one takes them as operands.
  }];
  let methods = [
    InterfaceMethod<"What is quantised.", "::mlir::Value", "getX">,
    InterfaceMethod<"Scale and zero point; none where the scales come from the data.", "::mlir::OperandRange",
                    "getScaling", (ins), "", [{ return $_op->getOperands().drop_front(); }]>,
    InterfaceMethod<"Whether the scales come from the data.", "bool", "isDynamic", (ins), "", [{
      return $_op->getNumOperands() == 1;
    }]>,
  ];
}

def NN_Shardable : OpInterface<"Shardable"> {
  let cppNamespace = "::fusion::nn";
  let description = [{
    How axes go through the op when a graph is divided among ranks. An op without it needs all of every
    operand.
  }];
  let methods = [InterfaceMethod<
    "Says which axes of operands and results are divided together, and which stay whole. By default each "
    "operand axis goes with the result axis that it meets by broadcasting.",
    "void", "shardAxes", (ins "::fusion::nn::ShardAxes &":$axes), "",
    [{ ::fusion::nn::shardElementwise($_op, axes); }]>];
}

#endif
