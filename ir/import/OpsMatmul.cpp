// Matrix products.
#include "ir/import/NodeImporter.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

void matmul(NodeImporter &n) {
  if (n.inputType(0) != n.inputType(1))
    return n.fail("operands have different element types");
  n.result(0, n.build<nn::MatmulOp>({n.operand(0), n.operand(1)}));
}

/// alpha A B + beta C
void gemm(NodeImporter &n) {
  if (n.rank(0) != 2 || n.rank(1) != 2)
    return n.fail("both operands must be matrices");
  double alpha = n.floatAttribute("alpha", 1), beta = n.floatAttribute("beta", 1);
  SmallVector<NamedAttribute> attributes;
  if (n.intAttribute("transA", 0) != 0)
    attributes.push_back(n.flag("transpose_a", true));
  if (n.intAttribute("transB", 0) != 0)
    attributes.push_back(n.flag("transpose_b", true));
  Type type = n.inputType(0);
  Value result = n.build<nn::MatmulOp>({n.operand(0), n.operand(1)}, attributes);
  if (alpha != 1)
    result = n.mul(result, n.scalar(type, alpha));
  if (n.has(2) && beta != 0) {
    Value c = n.operand(2);
    result = n.add(result, beta == 1 ? c : n.mul(c, n.scalar(type, beta)));
  }
  n.result(0, result);
}

} // namespace

void registerMatmul(HandlerTable &table) {
  table.add("", "MatMul", 2, 2, matmul);
  table.add("", "Gemm", 2, 3, gemm);
}

} // namespace fusion::onnx
