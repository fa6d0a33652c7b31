#include "test/recipes/Toy.h"

#include "ir/dialect/Types.h"

#include "test/recipes/ToyDialect.cpp.inc"
#define GET_OP_CLASSES
#include "test/recipes/Toy.cpp.inc"

using fusion::scalar::Graph;
using fusion::scalar::Value;

void toy::ToyDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "test/recipes/Toy.cpp.inc"
      >();
}

Value toy::SquareReluOp::formula(Graph &graph, llvm::ArrayRef<Value> operands) {
  const Value positive = graph.call("max_nan", {operands[0], graph.like(operands[0], 0)});
  return graph.convert(fusion::dtype(getY()), graph.mul(positive, positive));
}
