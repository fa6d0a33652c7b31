// Configurations of the kernel of large heads: codegen/device/attention_latent.cuh.
#include "codegen/schedule/AttentionBody.h"
#include "codegen/schedule/AttentionTiles.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

#include <numbers>
#include <numeric>

using namespace mlir;

namespace fusion::attention {

namespace {

constexpr int64_t panel = 64;          ///< columns that tensor cores read as rows of 128 bytes
constexpr int64_t largestDepth = 576;  ///< whose queries leave room for two tiles of keys
constexpr int64_t largestValues = 512; ///< half of which a thread's accumulators hold
constexpr int64_t valueStep = 2 * panel;

/// Whether the values are the first columns of the keys' first tensor, where it lies.
bool valuesInKeys(const Problem &problem) {
  const View keys = problem.storedView(problem.storedKeys), values = problem.storedView(problem.storedValues);
  const auto inner = [](const DimShape &shape) { return ArrayRef(shape).drop_back(); };
  return keys.base == values.base && keys.offset == values.offset && keys.strides == values.strides &&
         inner(keys.shape) == inner(values.shape) && values.shape[3].value() <= keys.shape[3].value();
}

/// Tiles of keys in shared memory.
struct LatentTiles {
  explicit LatentTiles(const Problem &problem) : valuesInKeys(attention::valuesInKeys(problem)) {
    // Barriers and what warpgroups tell each other are declared in the source.
    constexpr int64_t alignment = 1024, declared = 1024, weights = 2 * latentRows * panel, mostStages = 4;
    const auto depth = static_cast<int64_t>(llvm::alignTo(problem.depth, panel));
    const int64_t columns = depth + (valuesInKeys ? 0 : problem.valueDepth);
    const int64_t others = alignment + weights + 2 * latentRows * depth,
                  room = problem.context.target.sharedBytesPerBlock - declared - others;
    keys = room / (2 * 2 * panel * columns) >= 1 ? panel / 2 : panel / 4;
    const int64_t stageBytes = 2 * 2 * keys * columns;
    stages = std::min(mostStages, room / stageBytes);
    bytes = others + stages * stageBytes;
    pageBox = std::gcd(problem.pageSize, 2 * keys);
  }
  bool valuesInKeys;
  int64_t keys; ///< of a warpgroup, of which there are two
  int64_t stages, bytes;
  int64_t pageBox; ///< rows of a page that TMA copies at a time; a whole tile where there are none
};

LatentShare shareOf(const Problem &problem) {
  for (const LatentShare &share : latentShares)
    if (problem.mostPairs <= share.mostPairs)
      return share;
  return {INT64_MAX, 1, 1};
}

/// Of the clusters' results: LatentPartial.
Dim scratchWords(const Problem &problem, const LatentShare &share) {
  return problem.pairs * Dim(share.clusters * latentRows * (problem.valueDepth + 2));
}

} // namespace

std::optional<std::string> latentRefusal(const Problem &problem) {
  const Stored &keys = problem.storedKeys, &values = problem.storedValues;
  const std::string head = fmt::format("heads of {} and {} columns", problem.depth, problem.valueDepth);
  const TargetInfo &target = problem.context.target;
  if (!target.has(Feature::Wgmma) || !target.has(Feature::Tma) || !target.has(Feature::Clusters))
    return fmt::format("{}, more than {}, have kernels on sm_90a only", head, largestHead);
  if (problem.depth > largestDepth || problem.valueDepth > largestValues ||
      problem.valueDepth % valueStep != 0)
    return fmt::format("{}, not at most {} and multiples of {} up to {}", head, largestDepth, valueStep,
                       largestValues);
  if (problem.hasCodes() || values.second || (problem.table && keys.second))
    return head + " of codes, of values in two tensors, or in two tables of pages";
  if (auto reason = tensorCoreRefusal(problem))
    return reason;
  SmallVector<View> tensors{problem.storedView(keys), problem.storedView(values)};
  if (keys.second) {
    tensors.push_back(problem.view(keys.second));
    if (tensors[0].shape[3].value() % panel != 0)
      return fmt::format("{}, whose first part is no multiple of {}", head, panel);
  }
  if (problem.joinedQueries)
    tensors.push_back(problem.view(problem.joinedQueries->second));
  if (!llvm::all_of(tensors, [](const View &view) { return hasTensorMap(view) && readsVectors(view); }))
    return head + ", which TMA cannot copy where they lie";
  constexpr int64_t swizzledRows = 8;
  if (const LatentTiles tiles(problem); problem.table && tiles.pageBox % swizzledRows != 0)
    return fmt::format("{} in pages of {}, no multiple of {}", head, problem.pageSize, swizzledRows);
  return std::nullopt;
}

static KernelDraft emitLatent(const Problem &problem, const LatentShare &share) {
  nn::AttentionOp op = problem.op;
  const bool scaleOnly = isScaleOnly(problem);
  const LatentTiles tiles(problem);
  KernelBuilder kernel(problem, "latent", {.batch = static_cast<bool>(op.getCausal()), .score = !scaleOnly});
  const Stored &keys = problem.storedKeys;
  constexpr int64_t multiplyingWarps = 8, warps = multiplyingWarps + 4;
  kernel.config("warps", multiplyingWarps / 2); // whose rows are a tile's
  kernel.config("row_tiles", int64_t(1));
  kernel.config("cluster", share.blocks);
  kernel.config("splits", share.clusters);
  kernel.config("tile_keys", tiles.keys);
  kernel.config("stages", tiles.stages);
  kernel.config("first_columns", problem.storedView(keys).shape[3].value());
  kernel.config("values_in_keys", tiles.valuesInKeys);
  kernel.config("scale_only", scaleOnly);
  kernel.config("exponent_scale",
                scaleOnly ? static_cast<double>(op.getScale().convertToFloat()) * std::numbers::log2e
                          : std::numbers::log2e);
  constexpr unsigned rowsInHeads[] = {0, 1, 2, 3};
  if (problem.table)
    kernel.config("page_box", tiles.pageBox);
  auto map = [&](Value tensor, const View &view) {
    return kernel.tensorMap(
        tensor, mapOf(view, tensor, rowsInHeads, {1, 1, static_cast<uint32_t>(tiles.pageBox), panel}));
  };
  const std::string first = map(keys.tensor, problem.storedView(keys)),
                    rest = keys.second ? map(keys.second, problem.view(keys.second)) : first,
                    values = tiles.valuesInKeys
                                 ? first
                                 : map(problem.storedValues.tensor, problem.storedView(problem.storedValues));
  Launch launch{latentRows, warps, 1, share.blocks, tiles.bytes};
  launch.clusters = share.clusters;
  launch.arguments = fmt::format("{}, {}, {}", first, rest, values);
  if (share.clusters > 1)
    launch.arguments += ", " + kernel.scratch(scratchWords(problem, share), /*written=*/true);
  KernelDraft draft = kernel.finish(launch);
  draft.kernel.features |= static_cast<uint32_t>(Feature::Wgmma) | static_cast<uint32_t>(Feature::Tma);
  draft.flops = problem.flops();
  return draft;
}

static KernelDraft emitMerge(const Problem &problem, const LatentShare &share) {
  constexpr int64_t columnsOfWarp = 128;
  KernelBuilder kernel(problem, "latent_merge", {.score = false, .operands = false});
  kernel.config("splits", share.clusters);
  Launch launch{latentRows, problem.valueDepth / columnsOfWarp, 0};
  launch.clusters = latentRows; // a block for each row
  launch.arguments = kernel.scratch(scratchWords(problem, share), /*written=*/false);
  return kernel.finish(launch);
}

KernelDraft emitLatent(const Problem &problem) {
  LatentShare share = shareOf(problem);
  share.clusters = 1;
  return emitLatent(problem, share);
}

std::vector<PlannedAlternative> latentAlternatives(const Region &region, const KernelContext &context) {
  std::vector<Predicate> all = predicates(Problem(region, context));
  if (all.empty())
    all.emplace_back(); // one of them is for all sizes
  std::vector<PlannedAlternative> alternatives;
  for (const Predicate &when : all) {
    KernelContext within = context;
    within.when = when;
    const LatentShare share = shareOf(Problem(region, within));
    auto kernel = [&](KernelDraft (*emit)(const Problem &, const LatentShare &)) {
      return PlannedKernel{region, [&region, when, share, emit](KernelContext context) {
                             context.when = when;
                             return emit(Problem(region, context), share);
                           }};
    };
    PlannedAlternative one{when, {}, {kernel(emitLatent)}};
    if (share.clusters > 1)
      one.kernels.push_back(kernel(emitMerge));
    alternatives.push_back(std::move(one));
  }
  return alternatives;
}

} // namespace fusion::attention
