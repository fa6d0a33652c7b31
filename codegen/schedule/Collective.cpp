// The collective schedule: a sum over ranks and what the row schedule can do with it, as one kernel per rank;
// or, after a sum by the communication library, as a kernel of any schedule.
#include "codegen/LibrarySum.h"
#include "codegen/device/exchange_abi.h"
#include "codegen/schedule/RowBody.h"
#include "codegen/schedule/Schedules.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

namespace {
struct Rows {
  row::Graph graph;
  row::Layout layout;
};

/// 1024 threads have 64 registers each: enough to wait for few ranks with one vector each, not for more.
uint32_t mostThreads(int64_t ranks, int64_t vectors) { return ranks <= 4 && vectors <= 1024 ? 1024 : 512; }

/// Row counts that want the work shared out differently: with few rows, one block alone would take long to
/// send a row and to look for what the others send. `blocks`: of a cluster, for up to `most` rows.
struct Spread {
  int64_t most;
  uint32_t blocks;
};
std::vector<Spread> spreads(CollectiveAlgorithm algorithm, int64_t ranks, int64_t vectors, bool gathersRows) {
  // Measured on H200s at 1024 vectors a row.
  const int64_t few = std::max<int64_t>(1, 65536 / vectors);
  if (algorithm == CollectiveAlgorithm::TwoShot && gathersRows && ranks > 2)
    return {{few, 4}, {4 * few, 1}, {INT64_MAX, 1}};
  if (algorithm == CollectiveAlgorithm::TwoShot)
    return {{few, 4}, {INT64_MAX, 1}};
  if (ranks > 2) // more rows are for the other algorithm
    return {{INT64_MAX, 8}};
  return {{few, 8}, {2 * few, 4}, {INT64_MAX, 1}};
}

/// Shares each row out to up to `most` blocks, if the threads hold it evenly then.
void spread(Rows &rows, uint32_t most) {
  constexpr size_t mostReductions = 8; // of a row over a cluster: see cluster_site() in cluster_reduce.cuh
  size_t reductions = 0;
  for (const auto &pass : row::planPasses(rows.graph, rows.layout.inRegisters, /*inCluster=*/true).reductions)
    reductions += pass.size();
  if (reductions > mostReductions)
    return;
  const int64_t vectors = rows.graph.width.value() / rows.layout.vector;
  for (uint32_t blocks = most; blocks > 1 && rows.layout.wholeBlock(); blocks /= 2)
    if (vectors % (32 * blocks) == 0 && vectors / blocks >= 64 && vectors / blocks <= 512) {
      rows.layout.blockThreads = rows.layout.threadsPerRow = static_cast<uint32_t>(vectors) / blocks;
      rows.layout.chunks = rows.layout.clusterBlocks = blocks;
      return;
    }
}

/// The compiler, left to itself, spills rather than take the registers that the waits in the middle ask for.
/// Where rows come back finished and each thread has a few vectors, 64 are enough: more rows on their way at
/// once hide the two hops. Many narrow accesses, of rows of odd widths, need an address each.
uint32_t residentBlocks(const KernelContext &context, const row::Layout &layout,
                        const std::optional<row::Exchange> &exchange) {
  const uint32_t registers = static_cast<uint32_t>(context.target.registersPerMultiprocessor);
  const bool isSmall = exchange && exchange->gathersRows && exchange->ranks <= 4 && !layout.inCluster() &&
                       layout.wholeBlock() && layout.chunks <= 4 && layout.chunks * layout.vector <= 16;
  return std::max(1u, registers / (layout.blockThreads * (isSmall ? 64 : 168)));
}

/// Whether ranks gather rows that are normalised already, laid out so, and not only their sums.
bool gathersRows(const row::Graph &graph, const row::Layout &layout, int64_t ranks,
                 const KernelContext &context) {
  return context.algorithm == CollectiveAlgorithm::TwoShot &&
         row::Exchange(context, ranks, graph, layout).gathersRows;
}

/// The region as rows that start from the sum, or why it is not.
std::variant<Rows, std::string> rowsOf(const Region &region, KernelContext context) {
  const CollectiveAlgorithm algorithm = context.algorithm.value_or(CollectiveAlgorithm::OneShot);
  const int64_t ranks = region.ranks();
  context.algorithm = algorithm;
  auto graph = row::buildGraph(region, context);
  if (auto *reason = std::get_if<std::string>(&graph))
    return std::move(*reason);
  Rows rows{std::move(std::get<row::Graph>(graph)), {}};
  auto layout = row::chooseLayout(rows.graph);
  if (auto *reason = std::get_if<std::string>(&layout))
    return std::move(*reason);
  rows.layout = std::get<row::Layout>(layout);
  if (ranks == 1)
    return std::move(rows);
  if (llvm::none_of(rows.graph.nodes, [](const row::Node &node) { return node.summed; }))
    return std::string("nothing that leaves the region is made of the sum");
  if (!rows.graph.width.isStatic())
    return std::string("rows of a length that only a run knows");
  const int64_t vectors = rows.graph.width.value() / rows.layout.vector;
  const bool fills =
      algorithm == CollectiveAlgorithm::TwoShot && ranks > 2 && rows.layout.wholeBlock() && vectors % 32 == 0;
  const uint32_t most = mostThreads(ranks, vectors);
  if (rows.layout.blockThreads > most || (fills && vectors <= most)) {
    layout = row::chooseLayout(rows.graph, nullptr,
                               fills && vectors <= most ? static_cast<uint32_t>(vectors) : most);
    if (auto *reason = std::get_if<std::string>(&layout))
      return std::move(*reason);
    rows.layout = std::get<row::Layout>(layout);
  }
  if (!rows.layout.inRegisters)
    return std::string("rows that do not fit in registers");
  const int64_t least = context.range() ? context.range()->least : rows.graph.rows.constant().value_or(1);
  const std::vector<Spread> all =
      spreads(algorithm, ranks, vectors, gathersRows(rows.graph, rows.layout, ranks, context));
  for (const Spread &one : all)
    if (least <= one.most) {
      // Of the three layouts for rows that are gathered normalised the last is for many: two vectors a
      // thread, and two rows a multiprocessor.
      if (all.size() == 3 && algorithm == CollectiveAlgorithm::TwoShot && one.most == INT64_MAX &&
          rows.layout.chunks == 1 && vectors % 64 == 0 && vectors >= 128) {
        rows.layout.blockThreads = rows.layout.threadsPerRow = static_cast<uint32_t>(vectors) / 2;
        rows.layout.chunks = 2;
      }
      spread(rows, one.blocks);
      break;
    }
  return std::move(rows);
}

/// `all_reduce_add_rms_norm_bf16_4096_two_shot`
std::string nameOf(const Region &region, const KernelContext &context) {
  const std::string name = body::kernelName(region, context);
  if (region.ranks() == 1)
    return name;
  return name + (context.algorithm == CollectiveAlgorithm::TwoShot ? "_two_shot" : "_one_shot");
}

class CollectiveSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "collective"; }
  bool concerns(const Region &region) const override { return holdsAny<nn::AllReduceOp>(region); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    if (auto reason = whyNot(region, context))
      return refusal(*reason);
    SchedulePlan plan{[&region](const KernelContext &context) { return emit(region, context); }};
    plan.split = [&region, context] { return alternatives(region, context); };
    plan.scatteredRows = [&region, context] { return scatteredRows(region, context); };
    return plan;
  }

private:
  static std::optional<std::string> whyNot(const Region &region, const KernelContext &context) {
    const auto sums = llvm::count_if(region.ops, llvm::IsaPred<nn::AllReduceOp>);
    if (sums != 1)
      return std::string(sums == 0 ? "no nn.all_reduce in it" : "several sums over ranks");
    auto sum = cast<nn::AllReduceOp>(*llvm::find_if(region.ops, llvm::IsaPred<nn::AllReduceOp>));
    if (dtype(sum.getX()) == DType::Bool || dtype(sum.getY()) != dtype(sum.getX()))
      return "nn.all_reduce of " + std::string(fusion::name(dtype(sum.getX())));
    if (auto packed = readsPacked(region, context))
      return packed;
    if (region.ranks() == 1) {
      auto rows = rowsOf(region, context);
      return std::holds_alternative<Rows>(rows) ? std::nullopt : std::optional(std::get<std::string>(rows));
    }
    auto split = splitSum(region, context);
    return std::holds_alternative<LibrarySum>(split) ? std::nullopt
                                                     : std::optional(std::get<std::string>(split));
  }

  static std::vector<PlannedAlternative> alternatives(const Region &region, const KernelContext &context) {
    if (region.ranks() == 1)
      return alternativesFor({}, region,
                             [&region](const KernelContext &context) { return emit(region, context); });
    std::vector<PlannedAlternative> all;
    for (CollectiveAlgorithm algorithm : algorithms(region, context)) {
      KernelContext withAlgorithm = context;
      withAlgorithm.algorithm = algorithm;
      if (algorithm != CollectiveAlgorithm::TwoShot)
        withAlgorithm.scattered = {};
      std::vector<PlannedAlternative> ofAlgorithm(1);
      if (algorithm != CollectiveAlgorithm::Library)
        ofAlgorithm = alternativesFor(ranges(region, withAlgorithm), region,
                                      [&region, algorithm](KernelContext context) {
                                        context.algorithm = algorithm;
                                        if (algorithm != CollectiveAlgorithm::TwoShot)
                                          context.scattered = {};
                                        return emit(region, context);
                                      });
      for (PlannedAlternative &alternative : ofAlgorithm) {
        alternative.algorithm = algorithm;
        all.push_back(std::move(alternative));
      }
    }
    return all;
  }

  static std::vector<CollectiveAlgorithm> algorithms(const Region &region, const KernelContext &context) {
    auto sum = cast<nn::AllReduceOp>(*llvm::find_if(region.ops, llvm::IsaPred<nn::AllReduceOp>));
    const DType type = dtype(sum.getX());
    if (!isFloat(type) || type == DType::F64 || region.ranks() > fusion_exchange::maxRanks ||
        !std::holds_alternative<Rows>(rowsOf(region, context)))
      return {CollectiveAlgorithm::Library};
    return {CollectiveAlgorithm::OneShot, CollectiveAlgorithm::TwoShot, CollectiveAlgorithm::Library};
  }

  static std::vector<SizeRange> ranges(const Region &region, const KernelContext &context) {
    auto built = rowsOf(region, context);
    const Rows &rows = std::get<Rows>(built);
    if (!rows.layout.wholeBlock())
      return {};
    const int64_t vectors = rows.graph.width.value() / rows.layout.vector;
    std::vector<SizeRange> result;
    for (const Spread &one : spreads(*context.algorithm, region.ranks(), vectors,
                                     gathersRows(rows.graph, rows.layout, region.ranks(), context)))
      result.push_back({rows.graph.rows, result.empty() ? 1 : result.back().most + 1, one.most});
    return result.size() == 1 || rows.graph.rows.isStatic() ? std::vector<SizeRange>() : result;
  }

  static std::optional<ScatteredRows> scatteredRows(const Region &region, const KernelContext &context) {
    if (region.ranks() == 1 || algorithms(region, context).size() < 3)
      return std::nullopt;
    KernelContext withAlgorithm = context;
    withAlgorithm.algorithm = CollectiveAlgorithm::TwoShot;
    auto built = rowsOf(region, withAlgorithm);
    const Rows *rows = std::get_if<Rows>(&built);
    if (!rows || rows->layout.rowsPerBlock() != 1)
      return std::nullopt;
    return row::Exchange(withAlgorithm, region.ranks(), rows->graph, rows->layout)
        .scatteredRows(region, rows->graph);
  }

  static KernelDraft emit(const Region &region, const KernelContext &context) {
    auto built = rowsOf(region, context);
    const Rows &rows = std::get<Rows>(built);
    body::KernelSource source(region, context.inputs);
    const uint32_t blocks = rows.layout.clusterBlocks;
    row::BodyPrinter printer(region, context, rows.graph, rows.layout, source);
    std::optional<row::Exchange> exchange;
    if (region.ranks() > 1)
      printer.over(exchange.emplace(context, region.ranks(), rows.graph, rows.layout));
    body::Code code;
    code.line(printer.print());
    KernelDraft draft = source.finish({.schedule = "collective",
                                       .code = code.text(),
                                       .name = nameOf(region, context),
                                       .threads = rows.layout.blockThreads,
                                       .residentBlocks = residentBlocks(context, rows.layout, exchange),
                                       .clusterBlocks = blocks});
    draft.gridX = rows.graph.rows.ceilDiv(static_cast<int64_t>(rows.layout.rowsPerBlock())) * Dim(blocks);
    if (exchange)
      draft.collective = {*context.algorithm, exchange->messageBytes, exchange->roundBytes,
                          exchange->gathersRows};
    // It begins while the matmul's kernel runs, and lets the next one do so too.
    draft.sends = draft.launchesEarly = exchange && exchange->isSent;
    return draft;
  }
};
} // namespace

const Schedule &collectiveSchedule() {
  static const CollectiveSchedule schedule;
  return schedule;
}

} // namespace fusion
