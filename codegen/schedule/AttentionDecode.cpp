// Configurations of the kernels of a few rows: codegen/device/attention_decode_*.cuh.
#include "codegen/schedule/AttentionBody.h"
#include "codegen/schedule/AttentionHeads.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace fusion::attention {

namespace {

constexpr int64_t mostWarps = 8; ///< of a block

/// How many blocks share the keys of a head.
int64_t clusterBlocks(const Problem &problem) {
  int64_t blocks = problem.context.target.has(Feature::Clusters) ? 8 : 1;
  for (int64_t limit : pairLimits)
    if (problem.mostPairs > limit && blocks > 1)
      blocks /= 2;
  return blocks;
}

/// In which the warps of a block leave their acc_o.
int64_t accBytes(const Problem &problem, int64_t warps, int64_t rows) {
  return warps * rows * (problem.valueDepth + 4) * 4;
}

/// Whether rows can be read `length` elements at a time.
bool readsVectors(const View &view, int64_t length) {
  for (size_t i = 0; i < 3; ++i)
    if (view.shape[i] != Dim(1) && !view.strides[i].knownMultipleOf(length))
      return false;
  return view.strides[3] == Dim(1) && view.shape[3].knownMultipleOf(length) &&
         view.offset.knownMultipleOf(length);
}

/// The same of keys or values.
bool readsVectors(const Problem &problem, const Stored &stored, int64_t length) {
  return readsVectors(problem.storedView(stored), stored.elementsOf(length));
}

/// Whether the rows of a head lie one after the other, and heads no multiple of 4 KiB apart, as in most caches
/// of fixed length. Rings are faster there; of heads that lie 256 KiB or 2 MiB apart they are slower.
bool suitsRing(const Problem &problem, const Stored &stored, int64_t depth) {
  const View view = problem.storedView(stored);
  const std::optional<int64_t> ofHead = view.strides[1].constant();
  return view.strides[2] == Dim(depth) && view.strides[3] == Dim(1) && ofHead &&
         *ofHead * static_cast<int64_t>(byteSize(stored.type)) % 4096 != 0;
}

/// Elements of a row that a lane of a warp reads at a time: up to 16 bytes, if all lanes get some.
int64_t vectorOf(const Problem &problem, const Stored &stored, int64_t width) {
  int64_t length = 1;
  while (length * stored.bits() < 128 && 32 * length < width && readsVectors(problem, stored, 2 * length))
    length *= 2;
  return length;
}

KernelDraft emitFma(const Problem &problem) {
  constexpr int64_t rows = 4, warps = mostWarps;
  KernelBuilder kernel(problem, "decode_fma", {.columnStrides = true});
  kernel.config("warps", warps);
  kernel.config("cluster", clusterBlocks(problem));
  kernel.config("key_vector", vectorOf(problem, problem.storedKeys, problem.depth));
  kernel.config("value_vector", vectorOf(problem, problem.storedValues, problem.valueDepth));
  return kernel.finish({rows, warps, 1, clusterBlocks(problem), accBytes(problem, warps, rows)});
}

/// On tensor cores a lane reads vectors of 8 elements.
constexpr int64_t vectorLength = 8;

/// Of shared memory that a block may have, less what the merge needs beside keys and values that wait.
constexpr int64_t mergeBytes = 26 << 10;
int64_t waitingBytes(const TargetInfo &target) { return target.sharedBytesPerBlock - mergeBytes; }

/// What attention_decode_mma.cuh takes.
struct Tiles {
  explicit Tiles(const Problem &problem)
      : keyVectors(llvm::divideCeil(problem.depth, 4 * vectorLength)),
        valueVectors(llvm::divideCeil(problem.valueDepth, 8 * vectorLength)) {
    // Two tiles of 8 rows, if their accumulators fit a thread's registers.
    const std::optional<int64_t> rows = problem.mostRows();
    rowTiles = (!rows || *rows > rowsOfTile) && mayHaveTwo() ? 2 : 1;
    const int64_t vectors = 2 * keyVectors + 4 * valueVectors;
    const auto bytes = static_cast<int64_t>(byteSize(problem.storedKeys.type));
    const int64_t held = vectors * problem.storedKeys.bits() / 16; // in registers, four at a time
    const bool isCode = bytes == 1;
    // Where no instruction decodes f8, that takes registers too. There heads of 256 spill with codes of 4 bits.
    const int64_t room = !isCode || problem.context.target.has(Feature::F8Conversions)
                             ? (rowTiles == 1 ? 36 : 30)
                         : problem.storedKeys.packed ? 20
                                                     : 28;
    const bool inRegisters = held + 4 * valueVectors * rowTiles <= room;
    stageBytes = mostWarps * vectors * 32 * vectorLength * bytes;
    fits = inRegisters || (!isCode && stageBytes <= waitingBytes(problem.context.target));
    stages = inRegisters ? 0 : std::clamp<int64_t>(waitingBytes(problem.context.target) / stageBytes, 1, 4);
    const bool hasClusters = problem.context.target.has(Feature::Clusters);
    const int64_t blocks = clusterBlocks(problem);
    // Without clusters few heads have one block, too: not measured. Nor are codes, and pages.
    const bool hasAll = hasClusters && blocks == 1 && !isCode && problem.pageSize == 0 && inRegisters;
    if (hasAll && rowTiles == 1)
      chooseRing(problem);
    if (ring > 0)
      return;
    // A warp has one or two tiles where 8 blocks share the keys. Where a block has all keys of its head,
    // there are two such blocks on a multiprocessor, of fewer warps, so that registers are left.
    streams = inRegisters && held <= 8 && rowTiles == 1 && (hasAll || (blocks > 1 && blocks < 8)) ? 2 : 1;
    residentBlocks = hasAll && streams == 2 ? 2 : 1;
    warps = residentBlocks == 2 ? 6 : mostWarps;
  }
  /// A ring of the block's shared memory where a block has all keys of a head: what a multiprocessor then has
  /// on its way is 128 KiB. More heads than multiprocessors share them by two, where tiles are small.
  /// Measured: benchmarks/notes-attention.md.
  void chooseRing(const Problem &problem) {
    const TargetInfo &target = problem.context.target;
    const bool readsOwnRows = problem.made && !problem.made->keptKeys; // which generic stores have written
    if (readsOwnRows || !target.has(Feature::Tma) || !suitsRing(problem, problem.storedKeys, problem.depth) ||
        !suitsRing(problem, problem.storedValues, problem.valueDepth))
      return;
    constexpr int64_t onItsWay = 128 << 10, tileKeys = 16, least = 2, most = 8;
    const auto bytes = static_cast<int64_t>(byteSize(problem.storedKeys.type));
    const int64_t ofWarps = mostWarps * tileKeys * (problem.depth + problem.valueDepth) * bytes;
    const bool areMany = problem.mostPairs > pairLimits[std::size(pairLimits) - 1];
    const bool fitsTwice =
        2 * least * ofWarps <= std::min(onItsWay, target.sharedBytesPerMultiprocessor - 2 * mergeBytes);
    const int64_t together = areMany && fitsTwice ? 2 : 1;
    const int64_t tiles = std::min(onItsWay / together, waitingBytes(target)) / ofWarps;
    if (tiles < least)
      return;
    ring = std::min(tiles, most);
    ringBytes = ring * ofWarps;
    residentBlocks = together;
  }
  static constexpr int64_t rowsOfTile = 8;
  bool mayHaveTwo() const { return keyVectors + 2 * valueVectors <= 8; }
  int64_t keyVectors, valueVectors, rowTiles, stageBytes, stages;
  int64_t streams = 1; ///< keys and values that wait in registers, by turns
  int64_t warps = mostWarps, residentBlocks = 1;
  int64_t ring = 0, ringBytes = 0; ///< of a warp: tiles of keys and values; of a block
  bool fits;                       ///< keys and values that wait in shared memory have room there
};

bool runsOnTensorCores(const Problem &problem) {
  nn::AttentionOp op = problem.op;
  const DType type = dtype(problem.keysOfOp());
  return (type == DType::F16 || type == DType::BF16) && dtype(op.getQ()) == type &&
         dtype(problem.valuesOfOp()) == type && problem.storedKeys.type == problem.storedValues.type &&
         readsVectors(problem, problem.storedKeys, vectorLength) &&
         readsVectors(problem, problem.storedValues, vectorLength) && Tiles(problem).fits;
}

KernelDraft emitMma(const Problem &problem) {
  const Tiles tiles(problem);
  nn::AttentionOp op = problem.op;
  KernelBuilder kernel(problem, "decode_mma", {});
  kernel.config("warps", tiles.warps);
  kernel.config("cluster", clusterBlocks(problem));
  kernel.config("row_tiles", tiles.rowTiles);
  kernel.config("stages", tiles.stages);
  kernel.config("streams", tiles.streams);
  if (tiles.ring > 0)
    kernel.config("ring", tiles.ring);
  kernel.config("queries_aligned", readsVectors(problem.view(op.getQ()), vectorLength));
  if (problem.made && problem.made->keptKeys)
    kernel.config("keys_before_wait", problem.made->readsCachesEarly());
  if (kernel.knowsBoundsEarly())
    kernel.config("bounds_before_wait", true);
  const bool early = problem.context.mayLaunchEarly;
  if (early)
    kernel.config("launches_early", true);
  const int64_t rows = 8 * tiles.rowTiles;
  const int64_t sharedBytes =
      std::max({tiles.stages * tiles.stageBytes, tiles.ringBytes, accBytes(problem, tiles.warps, rows)});
  KernelDraft draft =
      kernel.finish({rows, tiles.warps, tiles.residentBlocks, clusterBlocks(problem), sharedBytes});
  if (problem.hasCodes() && problem.context.target.has(Feature::F8Conversions))
    draft.kernel.features |=
        static_cast<uint32_t>(Feature::F8Conversions); // its registers are counted with them
  if (tiles.ring > 0)
    draft.kernel.features |= static_cast<uint32_t>(Feature::Tma);
  draft.launchesEarly = early;
  return draft;
}

} // namespace

int64_t oneTileQueries(const Problem &problem) {
  const int64_t group = problem.group.constant().value_or(INT64_MAX);
  return group > 0 && runsOnTensorCores(problem) && Tiles(problem).mayHaveTwo() ? Tiles::rowsOfTile / group
                                                                                : 0;
}

bool keepsNewRows(const Problem &problem) {
  return runsOnTensorCores(problem) && !problem.storedKeys.packed && Tiles(problem).stages == 0;
}

KernelDraft emitDecode(const Problem &problem) {
  return runsOnTensorCores(problem) ? emitMma(problem) : emitFma(problem);
}

} // namespace fusion::attention
