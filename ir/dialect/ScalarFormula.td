#ifndef FUSION_NN_SCALAR_FORMULA
#define FUSION_NN_SCALAR_FORMULA

include "mlir/IR/OpBase.td"

def NN_ScalarFormula : OpInterface<"ScalarFormula"> {
  let cppNamespace = "::fusion::nn";
  let description = [{
    What an op computes for one element, with the roundings of ir/reference. Every kernel that computes the op
    uses it: pointwise kernels, rows, prologues and epilogues of matrix products. The formulas are in
    ir/dialect/Formulas.cpp.
  }];
  let methods = [InterfaceMethod<
    "The result from one element of each operand, held as registers hold them; rounded to the result's "
    "element type.",
    "::fusion::scalar::Value", "formula",
    (ins "::fusion::scalar::Graph &":$graph, "::llvm::ArrayRef<::fusion::scalar::Value>":$operands)>];
}

#endif
