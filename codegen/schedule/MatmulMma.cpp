// The configuration of gemm_mma: tiles on tensor cores.
#include "codegen/schedule/MatmulSource.h"

namespace fusion::matmul {

namespace {
bool isByteInteger(DType type) { return type == DType::I8 || type == DType::U8; }
bool isF8(DType type) { return type == DType::F8E4M3 || type == DType::F8E5M2; }
bool hasZeros(const Operand &operand) { return operand.decode && operand.decode->zero; }

/// Largest magnitude of q - zero point.
int64_t reach(const Operand &operand) { return hasZeros(operand) || operand.type == DType::U8 ? 255 : 128; }

/// Whether scale and zero point are one for all of k.
bool isOutsideSum(const Operand &operand, bool isA) {
  if (!operand.decode)
    return true;
  for (const std::optional<ScaleOrZero> *entry : {&operand.decode->scale, &operand.decode->zero})
    if (*entry && (isA ? (*entry)->alongColumns() : (*entry)->alongRows()))
      return false;
  return true;
}
} // namespace

bool multipliesTypes(const Problem &problem) {
  const DType a = problem.a.type;
  return llvm::all_of(problem.matmuls, [&](const Matmul &matmul) {
    const DType b = matmul.b.type;
    return (isByteInteger(a) && isByteInteger(b)) || (isF8(a) && isF8(b));
  });
}

bool multipliesBytes(const Problem &problem) {
  const DType a = problem.a.type, result = dtype(problem.op.getY());
  if (!isOutsideSum(problem.a, true) || !multipliesTypes(problem))
    return false;
  for (const Matmul &matmul : problem.matmuls) {
    const Operand &b = matmul.b;
    if (!isOutsideSum(b, false))
      return false;
    const bool scaled = isFloat(problem.a.value());
    if (!scaled) { // an integer sum wraps at 32 bits
      if (isFloat(result) || byteSize(result) > 4)
        return false;
      continue;
    }
    for (const Operand *operand : {&problem.a, &b}) {
      // Dequantising to a 16-bit type rounds visibly: those elements are decoded as they are loaded.
      if (operand->decode && operand->decode->type != DType::F32)
        return false;
      if (isF8(operand->type) && hasZeros(*operand))
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

std::optional<DType> tensorCoreType(const Problem &problem) {
  if (multipliesBytes(problem))
    return problem.a.type;
  auto fits = [&](DType type) {
    for (DType operand : {problem.a.value(), problem.b.value()})
      if (operand != type && !isF8(operand))
        return false;
    return true;
  };
  // f8 values are exact in either type.
  if (fits(DType::BF16))
    return DType::BF16;
  if (fits(DType::F16))
    return DType::F16;
  return std::nullopt;
}

static constexpr int64_t smallTile = 16, manyRows = 1024;

/// Whether many rows get a large tile. Not those of f8, which machines without an instruction for them unpack
/// in registers.
static bool isWide(const Problem &problem) {
  if (multipliesBytes(problem) && isFloat(problem.a.type))
    return false;
  std::optional<int64_t> n = problem.n.constant();
  return n && *n >= 1024;
}

llvm::SmallVector<int64_t> tileLimits(const Problem &problem) {
  if (!tensorCoreType(problem))
    return {};
  if (isWide(problem))
    return {smallTile, manyRows - 1};
  return {smallTile};
}

namespace {
struct Tiling {
  int64_t m = 64, n = 64; ///< of a block
  int64_t warpsM = 2, warpsN = 2;
};

/// As many accumulators as one thread's registers take, beside the sums that zero points multiply.
Tiling chooseTiling(const Problem &problem) {
  if (rowsAtOnce(problem) <= smallTile)
    return {16, 64, 1, 4};
  const bool shifted = multipliesBytes(problem) && (hasZeros(problem.a) || hasZeros(problem.b));
  if ((problem.routing ? problem.mostRows / problem.routing->experts : problem.leastRows) >= manyRows &&
      isWide(problem))
    return {128, problem.combined || shifted ? 64 : 128, 2, 2};
  return {};
}

/// How tiles of A or B are filled.
const char *copyOf(const Problem &problem, bool isA) {
  const bool bytes = multipliesBytes(problem);
  const DType type = *tensorCoreType(problem);
  const int64_t length = bytes ? 16 : 8;
  auto asIs = [&](const Operand &operand) { return bytes || (!operand.decode && operand.type == type); };
  const bool readable = readsVectors(problem, isA, length, length);
  const bool alongTile = isA || isKMajor(problem, false) || !bytes; // tiles of bytes lie along k
  const bool allAsIs =
      isA ? asIs(problem.a)
          : llvm::all_of(problem.matmuls, [&](const Matmul &matmul) { return asIs(matmul.b); });
  if (readable && alongTile && allAsIs)
    return "Copy::Async";
  if (readable && !bytes && byteSize(isA ? problem.a.type : problem.b.type) == 1)
    return "Copy::Vectors";
  if (!isA && !alongTile && readsVectors(problem, false, 4, 4))
    return "Copy::Transposed";
  return "Copy::Elements";
}
} // namespace

KernelDraft emitMma(const Region &region, const KernelContext &context, const Problem &problem) {
  const Tiling tile = chooseTiling(problem);
  const bool bytes = multipliesBytes(problem);
  const auto threads = static_cast<uint32_t>(32 * tile.warpsM * tile.warpsN);
  GemmSource source(region, context, problem, problem.routing ? "expert_mma" : "gemm_mma");
  source.setType("type", bytes ? "void" : body::spelling(*tensorCoreType(problem)));
  source.set("tile_m", tile.m);
  source.set("tile_n", tile.n);
  source.set("warps_m", tile.warpsM);
  source.set("warps_n", tile.warpsN);
  source.set("copy_a", "Copy", copyOf(problem, true));
  source.set("copy_b", "Copy", copyOf(problem, false));
  // Scales of bytes multiply the sums; without them, integers stay integers.
  const Sums sums{isFloat(problem.a.value()) ? DType::F32 : DType::I32, resultVector(problem, 2)};
  source.set("vector", sums.width);
  // Left to itself, the compiler spills a few registers of f8 kernels to fit more blocks: below sm_89 it
  // unpacks them.
  const uint32_t smallTiles = isFloat(problem.a.type) ? 2 : 3;
  const uint32_t residentBlocks = !bytes ? 0 : tile.m > 64 ? 1 : smallTiles;
  if (const TargetInfo &target = context.target; !problem.routing) {
    if (target.has(Feature::Wgmma))
      if (auto reason = sm90Refusal(problem, target))
        source.kernel().declare("// Not by warpgroups and TMA: " + *reason + ".\n");
    if (target.has(Feature::Tcgen05))
      if (auto reason = sm100Refusal(problem, target))
        source.kernel().declare("// Not by tcgen05: " + *reason + ".\n");
  }
  KernelDraft draft = source.finish(sums, threads, residentBlocks, /*takesPrologue=*/false);
  draft.gridX = problem.routing ? columnTiles(problem, tile.n) * expertGroups(problem)
                                : blockCount(problem, tile.m, tile.n);
  return draft;
}

} // namespace fusion::matmul
