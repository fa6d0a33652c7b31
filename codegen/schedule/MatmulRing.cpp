#include "codegen/schedule/MatmulRing.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

namespace {
constexpr int64_t depthBytes = 128;

int64_t stageBytes(const Problem &problem, int64_t width) {
  const int64_t lines = ringRows + width * static_cast<int64_t>(problem.accumulators());
  return lines * (depthBytes + (scalesSteps(problem) ? 4 : 0)); // a scale of a row or column is f32
}

bool isHalf(DType type) { return isFloat(type) && byteSize(type) == 2; }

bool isShifted(const Operand &operand) { return operand.decode && operand.decode->zero; }
} // namespace

bool addsExactly(const Problem &problem) {
  const bool isShort = problem.k.constant().value_or(INT64_MAX) <= 8192;
  return ringBytes(problem) && isFloat(problem.a.type) && (problem.result == DType::F16 || !isShort);
}

namespace {
/// Steps after which f8 is added in f32: as many as there are pieces of an epilogue, or half as many; 0:
/// never.
int64_t exactSteps(const Problem &problem, int64_t width) {
  const int64_t pieces = 2 * ((width + 31) / 32);
  return !addsExactly(problem) ? 0 : problem.result == DType::F16 ? pieces / 2 : pieces;
}

/// What TMA takes: rows of whole elements of one type at distances of whole 16 bytes.
bool hasRows(const Operand &operand, const Dim &stride, int64_t vector) {
  auto isEven = [&](const Dim &dim) { return dim.knownMultipleOf(vector); };
  return isEven(stride) && !(stride == Dim(0)) && stride.constant().value_or(1) > 0 &&
         isEven(operand.offset) && llvm::all_of(operand.batchStrides, isEven);
}

} // namespace

std::optional<std::string> byteRefusal(const Problem &problem) {
  if (!isKMajor(problem, false))
    return "the second operand's bytes do not lie along k";
  if (isShifted(problem.a) ||
      llvm::any_of(problem.matmuls, [&](const Matmul &matmul) { return isShifted(matmul.b); }))
    return "there are zero points";
  if (isFloat(problem.a.type) && !isHalf(problem.result) && !problem.narrow)
    return "tensor cores sum f8 less exactly than f32 is";
  if (!problem.batch.empty() && problem.a.decode && problem.a.decode->scale &&
      problem.a.decode->scale->alongRows())
    return "several matrices have a scale for each row";
  return std::nullopt;
}

bool scalesSteps(const Problem &problem) {
  const int64_t depth = depthBytes;
  auto fits = [&](const Operand &operand, bool isA) {
    if (!operand.decode || operand.decode->type != DType::F32 || operand.decode->zero ||
        !operand.decode->scale)
      return false;
    const ScaleOrZero &scale = *operand.decode->scale;
    return (isA ? !scale.alongColumns() : !scale.alongRows()) ||
           (isA ? scale.columnBlock : scale.rowBlock) % depth == 0;
  };
  return !multipliesBytes(problem) && multipliesTypes(problem) && fits(problem.a, true) &&
         llvm::all_of(problem.matmuls, [&](const Matmul &matmul) { return fits(matmul.b, false); });
}

bool ringBytes(const Problem &problem) { return multipliesBytes(problem) || scalesSteps(problem); }

int64_t ringVector(const Problem &problem) { return 16 / static_cast<int64_t>(byteSize(problem.a.type)); }
int64_t ringDepth(const Problem &problem) {
  return depthBytes / static_cast<int64_t>(byteSize(problem.a.type));
}

std::optional<std::string> ringRefusal(const Problem &problem, const TargetInfo &target) {
  if (!target.has(Feature::Wgmma) || !target.has(Feature::Tma))
    return "the GPU has none";
  return typeRefusal(problem);
}

std::optional<std::string> typeRefusal(const Problem &problem) {
  const bool bytes = ringBytes(problem);
  const std::optional<DType> type = bytes ? problem.a.type : tensorCoreType(problem);
  if (!type)
    return "the operands are not of 16 bits";
  if (problem.accumulators() > 2)
    return "more than two products are combined";
  if (!problem.prologue.empty())
    return "the kernel computes the first operand";
  if (!bytes && (problem.a.decode || problem.a.type != *type))
    return "the first operand is decoded";
  if (const int64_t depth = ringDepth(problem); problem.k.constant().value_or(depth) < depth)
    return fmt::format("the products are shorter than {}", depth);
  if (const DType result = problem.result;
      result != DType::F32 && !isHalf(result) && !(bytes && result == DType::I32))
    return fmt::format("the products are {}", name(result));
  if (bytes)
    if (auto reason = byteRefusal(problem))
      return reason;
  if (scalesSteps(problem) && problem.accumulators() > 1 && !isFloat(problem.a.type))
    return "two products of integers are combined whose scales differ along k";
  const bool kMajor = isKMajor(problem, false);
  for (const Matmul &matmul : problem.matmuls) {
    const Operand &b = matmul.b;
    const Dim &inner = kMajor ? b.rowStride : b.columnStride, &outer = kMajor ? b.columnStride : b.rowStride;
    const bool asIs = bytes ? b.type == problem.b.type : !b.decode && b.type == *type;
    if (!asIs || !(inner == Dim(1)) || !hasRows(b, outer, ringVector(problem)))
      return "the second operand is decoded, or its rows are no multiple of 16 bytes apart";
    if (dtype(matmul.op.getY()) != dtype(problem.op.getY()))
      return "the products are of several types";
    if (matmul.n.constant().value_or(64) < 64)
      return "there are fewer than 64 columns";
  }
  return std::nullopt;
}

/// Bytes that the epilogue reads and writes for a column of a row.
static int64_t epilogueBytes(const Region &region, const Problem &problem) {
  auto isOf = [](const Operand &operand, unsigned input) {
    const bool isScale = operand.decode && operand.decode->scale && !operand.decode->scale->literal &&
                         operand.decode->scale->input == input;
    return operand.input == input || isScale;
  };
  auto isOperand = [&](unsigned input) {
    return isOf(problem.a, input) || (problem.routing && input == problem.routing->input) ||
           llvm::any_of(problem.matmuls, [&](const Matmul &matmul) { return isOf(matmul.b, input); });
  };
  auto isForRows = [](Value input) { // the same for all columns
    const auto type = cast<RankedTensorType>(input.getType());
    return type.getRank() == 0 || type.getShape().back() == 1;
  };
  size_t bytes = 0;
  for (auto [index, input] : llvm::enumerate(region.inputs))
    if (!isOperand(static_cast<unsigned>(index)) && !isForRows(input))
      bytes += byteSize(dtype(input));
  for (Value output : region.outputs)
    bytes += byteSize(dtype(output));
  return static_cast<int64_t>(bytes);
}

/// Tiles of so many columns lie in one block of scales each.
static bool hasOneColumnScale(const Problem &problem, int64_t width) {
  return llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
    const ScaleOrZero &scale = *matmul.b.decode->scale;
    return !scale.alongColumns() || scale.columnBlock % width == 0;
  });
}

SmallVector<int64_t> ringWidths(const Region &region, const Problem &problem) {
  const auto sums = static_cast<int64_t>(problem.accumulators());
  // A thread has a sum for every two columns, half as many words of parked results, and what the epilogue of
  // a piece takes.
  const int64_t bytes = epilogueBytes(region, problem);
  // Sums in f32 beside those of the tensor cores take as many again, integers that become f32 some more.
  const int64_t most = scalesSteps(problem) ? (sums > 1 || (bytes <= 8 && isFloat(problem.a.type)) ? 128 : 96)
                       : addsExactly(problem) ? 160
                       : bytes <= 8           ? 256
                       : bytes <= 12          ? 224
                                              : 192;
  // By depth, B lies in panels of 64 columns.
  const int64_t step = isKMajor(problem, false) ? 16 : 64, widest = most / sums / step * step;
  SmallVector<int64_t> widths;
  for (int64_t width = widest; width >= 64; width -= step)
    widths.push_back(width);
  // Where a tile's columns have one scale, the kernel multiplies half as much.
  auto hasOne = [&](int64_t width) { return hasOneColumnScale(problem, width); };
  if (scalesSteps(problem) && llvm::any_of(widths, hasOne))
    llvm::erase_if(widths, [&](int64_t width) { return !hasOne(width); });
  return widths;
}

int64_t ringStages(const Problem &problem, const TargetInfo &target, int64_t width, int64_t reserved) {
  constexpr int64_t most = 8, alignment = 1024;
  return std::min(most, (target.sharedBytesPerBlock - reserved - alignment) / stageBytes(problem, width));
}

Sums ringSums(const Problem &problem) {
  return {problem.result, resultVector(problem, isHalf(problem.result) ? 8 : 2), /*readsAhead=*/true};
}

void setTiles(GemmSource &source, const Problem &problem, int64_t width, int64_t stages) {
  const Sums sums = ringSums(problem);
  source.setType("type", body::spelling(problem.a.type));
  if (ringBytes(problem))
    source.setType("type_b", body::spelling(problem.b.type));
  source.setType("result", body::spelling(sums.type));
  source.set("tile_n", width);
  source.set("stages", stages);
  source.set("vector", sums.width);
  source.set("k_major", isKMajor(problem, false));
}

void setRing(GemmSource &source, const Problem &problem, int64_t width, int64_t stages) {
  setTiles(source, problem, width, stages);
  if (scalesSteps(problem)) {
    source.set("scaled_steps", true);
    source.set("one_column_scale", hasOneColumnScale(problem, width));
  } else if (const int64_t steps = exactSteps(problem, width)) {
    source.set("exact_steps", steps);
  }
}

TensorMapArgument mapOfB(const Problem &problem, const Matmul &matmul, int64_t width) {
  const bool kMajor = isKMajor(problem, false);
  const Operand &b = matmul.b;
  TensorMapArgument map;
  map.byteOffset = b.offset * Dim(static_cast<int64_t>(byteSize(b.type)));
  map.type = b.type;
  const Dim &outer = kMajor ? b.columnStride : b.rowStride;
  const auto rows = static_cast<uint32_t>(kMajor ? width : ringDepth(problem));
  map.shape = kMajor ? DimShape{1, matmul.n, problem.k} : DimShape{1, problem.k, matmul.n};
  map.strides = {outer, outer, 1};
  map.box = {1, rows, kMajor ? static_cast<uint32_t>(ringDepth(problem)) : 64};
  map.swizzle = TensorMapArgument::Swizzle::Bytes128;
  map.l2Promotion = TensorMapArgument::L2Promotion::Bytes256;
  return map;
}

void finishRing(KernelDraft &draft, const Problem &problem, int64_t width, int64_t stages,
                Feature multiplier) {
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(stages * stageBytes(problem, width) + 1024);
  draft.kernel.features |= static_cast<uint32_t>(multiplier | Feature::Tma);
}

} // namespace fusion::matmul
