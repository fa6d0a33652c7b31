// nn.sample: a block draws of each row, or, of few long rows, many do.
#include "codegen/schedule/Sample.h"
#include "codegen/schedule/RowWalk.h"

#include "ir/dialect/Sample.h"

using namespace mlir;

namespace fusion {

using scalar::Level, scan::RowWalk;

namespace {
/// Few long rows are shared out among blocks, by kernels that follow each other: sampling_parts.cuh.
constexpr int64_t longSample = 16384, sampleBins = 2048, mostListed = 511;
/// Up to so many rows have so many blocks each. Measured on an H200: docs/generation.md.
struct SampleParts {
  int64_t mostRows, parts;
};
constexpr SampleParts sampleParts[] = {{8, 32}, {24, 16}, {64, 8}};

/// Two for each cut.
int64_t roundsOf(nn::SampleOp op) { return 2 * (int64_t(op.getTopK() > 0) + int64_t(op.share() != 0)); }

/// The kernel `function` for rows of scores; in `parts`, with this round of bins.
KernelDraft emit(nn::SampleOp op, const Region &region, const KernelContext &context,
                 const char *function = "sample", SampleParts parts = {}, int64_t round = -1) {
  RowWalk walk(region, context, -1);
  const bool inParts = parts.parts > 0;
  walk.takeBlocks();
  walk.threads = std::min(walk.threads, scan::clusterThreads); // of more, ptxas keeps registers in memory
  walk.readVectors();
  walk.file = inParts ? "sampling_parts.cuh" : "sampling.cuh";
  const auto count = static_cast<int64_t>(op.getTopK()), share = static_cast<int64_t>(op.share());
  const std::optional<int64_t> length = walk.shape.back().constant();
  walk.source.config.setType("Count", length && *length <= INT32_MAX ? "u32" : "i64");
  walk.source.config.set("f32", "scale", body::literal(DType::F32, op.scale()));
  walk.source.config.set("i64", "count", body::integerLiteral(DType::I64, count));
  walk.source.config.set("u64", "share", body::integerLiteral(DType::U64, share));
  std::string memory;
  if (inParts) {
    // As SampleMemory has it.
    const int64_t rounds = roundsOf(op), ofList = op.getTopK() > 0 ? mostListed + 1 : 0;
    const int64_t ofParts = parts.parts * (1 + ofList + walk.threads / 32);
    const int64_t words = ofParts + 2 * (rounds + 1) + rounds * sampleBins;
    walk.name = region.outputs.empty() ? std::string(function) + "_of_parts" : "";
    walk.source.config.set("parts", parts.parts);
    walk.source.config.set("words", words);
    if (round >= 0)
      walk.source.config.set("round", round);
    memory = walk.source.scratch(Dim::min(product(walk.rows), Dim(parts.mostRows)) * Dim(2 * words), true);
  }
  if (!region.outputs.empty()) {
    const unsigned seedInput = RowWalk::indexOf(region, op.getSeed());
    scalar::Graph seeds;
    const scalar::Value index[] = {seeds.input("at", DType::I64, Level::Element)};
    const scalar::Value seed = seeds.convertRegister(
        DType::I64, seeds.load(walk.source.body.pointer(seedInput),
                               walk.source.body.address(seeds, context.inputs[seedInput], index)));
    body::Printer printer(seeds, walk.source.names);
    body::Code code(2);
    printer.enterBlock();
    const std::string loaded = printer.value(seed, code);
    code.line(fmt::format("return {};", loaded));
    printer.leaveBlock();
    walk.source.body.method("DEVICE i64 seed(i64 at) const", code);
  }
  scalar::Graph &graph = walk.graph;
  const DType result = dtype(op.getY());
  const scalar::Value place = graph.input("place", DType::I64, Level::Element);
  KernelDraft draft = walk.finish(function, DType::F32, graph.convertRegister(DType::F32, walk.element()),
                                  {graph.convert(result, place), result},
                                  graph.input("row", DType::I64, Level::Row),
                                  "DEVICE void put(i64 row, i64 place) const", nullptr, memory);
  if (inParts)
    draft.gridX = region.outputs.empty() ? product(walk.rows) * Dim(parts.parts) : product(walk.rows);
  return draft;
}

PlannedAlternative byParts(nn::SampleOp op, const Region &region, const SampleParts &parts) {
  Region inner = region;
  inner.outputs.clear();
  PlannedAlternative all;
  all.keepsScratch = false; // the bins of each draw are its own
  auto add = [&](const Region &of, const char *function, int64_t round = -1) {
    all.kernels.push_back({of, [op, of, function, parts, round](const KernelContext &its) {
                             return emit(op, of, its, function, parts, round);
                           }});
  };
  add(inner, "sample_largest");
  for (int64_t round = 0; round < roundsOf(op); ++round)
    add(inner, "sample_bins", round);
  add(inner, "sample_sums");
  add(region, "sample_place");
  return all;
}

} // namespace

KernelDraft emitSample(const Region &region, const KernelContext &context) {
  return emit(llvm::cast<nn::SampleOp>(region.ops[0]), region, context);
}

std::vector<PlannedAlternative> alternativesOfSample(const Region &region, const KernelContext &context) {
  auto op = llvm::cast<nn::SampleOp>(region.ops[0]);
  const DimShape &shape = context.shape(op.getScores());
  const Dim rows = product(llvm::ArrayRef<Dim>(shape).drop_back());
  const KernelEmitter whole = [region](const KernelContext &its) { return emitSample(region, its); };
  const int64_t length = shape.back().constant().value_or(0);
  if (length < longSample || length > INT32_MAX || rows.constant().value_or(1) < 1)
    return alternativesFor({}, region, whole);
  std::vector<PlannedAlternative> found;
  int64_t least = 1;
  for (const SampleParts &parts : sampleParts) {
    if (!rows.constant()) {
      found.push_back(byParts(op, region, parts));
      found.back().when = {{rows, least, parts.mostRows}};
    } else if (*rows.constant() <= parts.mostRows) {
      return {byParts(op, region, parts)};
    }
    least = parts.mostRows + 1;
  }
  const SizeRange more{rows, least, INT64_MAX};
  llvm::append_range(found, rows.constant() ? alternativesFor({}, region, whole)
                                            : alternativesFor(more, region, whole));
  return found;
}

} // namespace fusion
