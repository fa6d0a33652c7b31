// Products of 8-bit operands as they lie in memory, for tensor cores.
//
// Of a product of dequantised operands, f32(qa sa) f32(qb sb) summed in f32, the kernel computes
// (Σ (qa - za) (qb - zb)) sa sb: integer sums are exact, f8 sums are in f32, and the scales, which are one for all of k,
// multiply the sum. What is left out is the rounding of each dequantised element to f32, which is of the size of the
// f32 sum's own rounding: the result differs as it does for another order of summation. Dequantising to a 16-bit type
// rounds visibly, so there the elements are decoded as they are loaded.
#include "codegen/schedule/MatmulProblem.h"

namespace fusion::matmul {

namespace {
bool isByteInteger(DType type) { return type == DType::I8 || type == DType::U8; }
bool isF8(DType type) { return type == DType::F8E4M3 || type == DType::F8E5M2; }

/// Largest magnitude of q - zero.
int64_t reach(const Operand &operand) {
  return operand.decode && operand.decode->zero ? 255 : operand.type == DType::U8 ? 255 : 128;
}

/// Whether scale and zero point leave the sum over k alone.
bool isOutsideSum(const Operand &operand, bool isA) {
  if (!operand.decode)
    return true;
  for (const std::optional<Entry> *entry : {&operand.decode->scale, &operand.decode->zero})
    if (*entry && (isA ? (*entry)->alongColumns() : (*entry)->alongRows()))
      return false;
  return true;
}
} // namespace

bool multipliesBytes(const Problem &problem) {
  const DType a = problem.a.type, result = dtype(nn::MatmulOp(problem.op).getY());
  if (!isOutsideSum(problem.a, true))
    return false;
  for (const Product &product : problem.products) {
    const Operand &b = product.b;
    if (!isOutsideSum(b, false) || !((isByteInteger(a) && isByteInteger(b.type)) || (isF8(a) && isF8(b.type))))
      return false;
    const bool scaled = isFloat(problem.a.value());
    if (!scaled) { // an integer product wraps at 32 bits
      if (isFloat(result) || byteSize(result) > 4)
        return false;
      continue;
    }
    for (const Operand *operand : {&problem.a, &b}) {
      if (operand->decode && operand->decode->type != DType::F32)
        return false;
      if (isF8(operand->type) && operand->decode && operand->decode->zero)
        return false;
    }
    if (isByteInteger(a)) {
      std::optional<int64_t> k = problem.k.constant();
      if (!k || *k > INT32_MAX / (reach(problem.a) * reach(b)))
        return false;
    }
  }
  return true;
}

} // namespace fusion::matmul
