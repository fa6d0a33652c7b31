// A dialect of one activation: the recipe "An elementwise op or activation" of docs/architecture.md, followed
// outside of the project. Nothing but Toy.td, Toy.h and Toy.cpp knows the op.
#ifndef TOY
#define TOY

include "ir/dialect/NNPointwise.td"
include "ir/dialect/ScalarFormula.td"

def Toy_Dialect : Dialect {
  let name = "toy";
  let cppNamespace = "::toy";
}

def Toy_SquareReluOp : NN_Unary<"square_relu", "max(x, 0) squared", "Computed in f32 and rounded once.",
                                [NN_Activation, DeclareOpInterfaceMethods<NN_ScalarFormula>]> {
  let opDialect = Toy_Dialect;
  let cppNamespace = "::toy";
}

#endif
