#include "codegen/schedule/MatmulCodes.h"

#include <numeric>

namespace fusion::matmul {

int64_t codeBits(const Operand &operand) { return operand.packed ? 4 : 8; }

int64_t entryBits(const ScaleOrZero &entry) {
  return entry.packed ? 4 : 8 * static_cast<int64_t>(byteSize(entry.type));
}

int64_t scaleDepth(const Problem &problem, int64_t depth) {
  const int64_t neighbours = neighboursPerScale(problem);
  return neighbours == 0 ? 0 : std::gcd(neighbours, depth);
}

bool scaleFits(const Problem &problem) {
  const Decode &decode = *problem.b.decode;
  return !decode.scale->literal && decode.scale->type == decode.type;
}

bool readsCodesEarly(const Problem &problem, const KernelContext &context) {
  return llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
    auto isKnown = [&](const std::optional<ScaleOrZero> &entry) {
      return !entry || entry->literal || context.isIndependentOfPredecessor(entry->input);
    };
    return context.isIndependentOfPredecessor(matmul.b.input) && isKnown(matmul.b.decode->scale) &&
           isKnown(matmul.b.decode->zero);
  });
}

} // namespace fusion::matmul
