#include "codegen/schedule/MatmulRing.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

namespace {
int64_t stageBytes(const Problem &problem, int64_t width) {
  return 2 * ringDepth * (ringRows + width * static_cast<int64_t>(problem.accumulators()));
}

/// The type to which products are rounded before the epilogue takes them.
DType resultOf(const Problem &problem) { return dtype(problem.op.getY()); }

/// What TMA takes: rows of whole elements of one type at distances of whole 16 bytes.
bool hasRows(const Operand &operand, DType type, const Dim &stride) {
  return !operand.decode && operand.type == type && stride.knownMultipleOf(8) && !(stride == Dim(0)) &&
         stride.constant().value_or(8) > 0 && operand.offset.knownMultipleOf(8) &&
         llvm::all_of(operand.batchStrides, [](const Dim &dim) { return dim.knownMultipleOf(8); });
}
} // namespace

std::optional<std::string> ringRefusal(const Problem &problem, const TargetInfo &target) {
  const std::optional<DType> type = tensorCoreType(problem);
  if (!target.has(Feature::Wgmma) || !target.has(Feature::Tma))
    return "the GPU has none";
  if (!type || multipliesBytes(problem))
    return "the operands are not of 16 bits";
  if (problem.accumulators() > 2)
    return "more than two products are combined";
  if (!problem.prologue.empty())
    return "the kernel computes the first operand";
  if (problem.a.decode || problem.a.type != *type)
    return "the first operand is decoded";
  if (problem.k.constant().value_or(ringDepth) < ringDepth)
    return fmt::format("the products are shorter than {}", ringDepth);
  const DType result = resultOf(problem);
  if (result != DType::F32 && !(isFloat(result) && byteSize(result) == 2))
    return fmt::format("the products are {}", name(result));
  const bool kMajor = isKMajor(problem, false);
  for (const Matmul &matmul : problem.matmuls) {
    const Operand &b = matmul.b;
    const Dim &inner = kMajor ? b.rowStride : b.columnStride, &outer = kMajor ? b.columnStride : b.rowStride;
    if (!(inner == Dim(1)) || !hasRows(b, *type, outer))
      return "the second operand is decoded, or its rows are no multiple of 16 bytes apart";
    if (dtype(matmul.op.getY()) != result)
      return "the products are of several types";
    if (matmul.n.constant().value_or(64) < 64)
      return "there are fewer than 64 columns";
  }
  return std::nullopt;
}

/// Bytes that the epilogue reads and writes for a column of a row.
static int64_t epilogueBytes(const Region &region, const Problem &problem) {
  auto isOperand = [&](unsigned input) {
    return input == problem.a.input || (problem.routing && input == problem.routing->input) ||
           llvm::any_of(problem.matmuls, [&](const Matmul &matmul) { return matmul.b.input == input; });
  };
  size_t bytes = 0;
  for (auto [index, input] : llvm::enumerate(region.inputs))
    bytes += isOperand(static_cast<unsigned>(index)) ? 0 : byteSize(dtype(input));
  for (Value output : region.outputs)
    bytes += byteSize(dtype(output));
  return static_cast<int64_t>(bytes);
}

SmallVector<int64_t> ringWidths(const Region &region, const Problem &problem) {
  const auto sums = static_cast<int64_t>(problem.accumulators());
  // A thread has a sum for every two columns, half as many words of parked results, and what the epilogue of
  // a piece takes.
  const int64_t bytes = epilogueBytes(region, problem), most = bytes <= 4 ? 256 : bytes <= 8 ? 224 : 192;
  // By depth, B lies in panels of 64 columns.
  const int64_t step = isKMajor(problem, false) ? 16 : 64, widest = most / sums / step * step;
  SmallVector<int64_t> widths;
  for (int64_t width = widest; width >= 64; width -= step)
    widths.push_back(width);
  return widths;
}

int64_t ringStages(const Problem &problem, const TargetInfo &target, int64_t width, int64_t reserved) {
  constexpr int64_t most = 8, alignment = 1024;
  return std::min(most, (target.sharedBytesPerBlock - reserved - alignment) / stageBytes(problem, width));
}

Sums ringSums(const Problem &problem) {
  const DType result = resultOf(problem);
  return {result, resultVector(problem, result == DType::F32 ? 2 : 8), /*readsAhead=*/true};
}

void setRing(GemmSource &source, const Problem &problem, int64_t width, int64_t stages) {
  const Sums sums = ringSums(problem);
  source.setType("type", body::spelling(problem.a.type));
  source.setType("result", body::spelling(sums.type));
  source.set("tile_n", width);
  source.set("stages", stages);
  source.set("vector", sums.width);
  source.set("k_major", isKMajor(problem, false));
}

TensorMapArgument mapOfB(const Problem &problem, const Matmul &matmul, int64_t width) {
  const bool kMajor = isKMajor(problem, false);
  const Operand &b = matmul.b;
  TensorMapArgument map;
  map.byteOffset = b.offset * Dim(static_cast<int64_t>(byteSize(b.type)));
  map.type = b.type;
  const Dim &outer = kMajor ? b.columnStride : b.rowStride;
  const auto rows = static_cast<uint32_t>(kMajor ? width : ringDepth);
  map.shape = kMajor ? DimShape{1, matmul.n, problem.k} : DimShape{1, problem.k, matmul.n};
  map.strides = {outer, outer, 1};
  map.box = {1, rows, 64};
  map.swizzle = TensorMapArgument::Swizzle::Bytes128;
  map.l2Promotion = TensorMapArgument::L2Promotion::Bytes256;
  return map;
}

void finishRing(KernelDraft &draft, const Problem &problem, int64_t width, int64_t stages) {
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(stages * stageBytes(problem, width) + 1024);
  draft.kernel.features |= static_cast<uint32_t>(Feature::Wgmma) | static_cast<uint32_t>(Feature::Tma);
}

} // namespace fusion::matmul
