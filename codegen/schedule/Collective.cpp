// The collective schedule: a sum over ranks and what the row schedule can do with it, as one kernel per rank; or, behind a
// sum by the communication library, as a kernel of any schedule.
#include "codegen/LibrarySum.h"
#include "codegen/device/exchange_abi.h"
#include "codegen/schedule/RowEmitter.h"
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

/// Row counts that want the work shared out differently: with few rows, one block alone would take long to send a row and to
/// look for what the others send. `blocks`: of a cluster, for up to `most` rows.
struct Spread {
  int64_t most;
  uint32_t blocks;
};
std::vector<Spread> spreads(CollectiveForm form, int64_t ranks, int64_t vectors, bool finished) {
  // Measured on H200s at 1024 vectors a row.
  const int64_t few = std::max<int64_t>(1, 65536 / vectors);
  if (form == CollectiveForm::TwoShot && finished && ranks > 2)
    return {{few, 4}, {4 * few, 1}, {INT64_MAX, 1}};
  if (form == CollectiveForm::TwoShot)
    return {{few, 4}, {INT64_MAX, 1}};
  if (ranks > 2) // more rows are for the other form
    return {{INT64_MAX, 8}};
  return {{few, 8}, {2 * few, 4}, {INT64_MAX, 1}};
}

/// Shares each row out to up to `most` blocks, if the threads hold it evenly then.
void spread(Rows &rows, uint32_t most) {
  const int64_t vectors = rows.graph.width.value() / rows.layout.vector;
  for (uint32_t blocks = most; blocks > 1 && rows.layout.wholeBlock(); blocks /= 2)
    if (vectors % (32 * blocks) == 0 && vectors / blocks >= 64 && vectors / blocks <= 512) {
      rows.layout.blockThreads = rows.layout.threadsPerRow = static_cast<uint32_t>(vectors) / blocks;
      rows.layout.chunks = rows.layout.clusterBlocks = blocks;
      return;
    }
}

/// The compiler, left to itself, spills rather than take the registers that the waits in the middle ask for. Where rows come
/// back finished and each thread has two vectors, 64 are enough: more rows on their way at once hide the two hops.
uint32_t residentBlocks(const row::Layout &layout, const std::optional<row::Exchange> &exchange) {
  constexpr uint32_t registers = 65536;
  const bool isSmall = exchange && exchange->finished && exchange->ranks <= 4 && !layout.inCluster() &&
                       layout.wholeBlock() && layout.chunks * layout.vector <= 16;
  return std::max(1u, registers / (layout.blockThreads * (isSmall ? 64 : 168)));
}

/// Whether owners send back what they make of rows laid out so.
bool areFinished(const row::Graph &graph, const row::Layout &layout, int64_t ranks, const KernelContext &context) {
  return context.form == CollectiveForm::TwoShot && row::Exchange(context, ranks, graph, layout).finished;
}

/// The region as rows that start from the sum, or why it is not.
std::variant<Rows, std::string> rowsOf(const Region &region, KernelContext context) {
  const CollectiveForm form = context.form.value_or(CollectiveForm::OneShot);
  const int64_t ranks = region.ranks();
  context.form = form;
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
  const bool fills = form == CollectiveForm::TwoShot && ranks > 2 && rows.layout.wholeBlock() && vectors % 32 == 0;
  const uint32_t most = mostThreads(ranks, vectors);
  if (rows.layout.blockThreads > most || (fills && vectors <= most)) {
    layout = row::chooseLayout(rows.graph, nullptr, fills && vectors <= most ? static_cast<uint32_t>(vectors) : most);
    if (auto *reason = std::get_if<std::string>(&layout))
      return std::move(*reason);
    rows.layout = std::get<row::Layout>(layout);
  }
  if (!rows.layout.inRegisters)
    return std::string("rows that do not fit in registers");
  const int64_t least = context.range ? context.range->least : rows.graph.rows.constant().value_or(1);
  const std::vector<Spread> all = spreads(form, ranks, vectors, areFinished(rows.graph, rows.layout, ranks, context));
  for (const Spread &one : all)
    if (least <= one.most) {
      // Of three ways for finished rows the last is for many: two vectors a thread, and two rows a multiprocessor.
      if (all.size() == 3 && form == CollectiveForm::TwoShot && one.most == INT64_MAX && rows.layout.chunks == 1 &&
          vectors % 64 == 0 && vectors >= 128) {
        rows.layout.blockThreads = rows.layout.threadsPerRow = static_cast<uint32_t>(vectors) / 2;
        rows.layout.chunks = 2;
      }
      spread(rows, one.blocks);
      break;
    }
  return std::move(rows);
}

class CollectiveSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "collective"; }

  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override {
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
    return std::holds_alternative<LibrarySum>(split) ? std::nullopt : std::optional(std::get<std::string>(split));
  }

  std::vector<CollectiveForm> forms(const Region &region, const KernelContext &context) const override {
    if (region.ranks() == 1)
      return {};
    auto sum = cast<nn::AllReduceOp>(*llvm::find_if(region.ops, llvm::IsaPred<nn::AllReduceOp>));
    const DType type = dtype(sum.getX());
    if (!isFloat(type) || type == DType::F64 || region.ranks() > fusion_exchange::maxRanks ||
        !std::holds_alternative<Rows>(rowsOf(region, context)))
      return {CollectiveForm::Library};
    return {CollectiveForm::OneShot, CollectiveForm::TwoShot, CollectiveForm::Library};
  }

  std::vector<SizeRange> ranges(const Region &region, const KernelContext &context) const override {
    if (!context.form || region.ranks() == 1)
      return {};
    auto built = rowsOf(region, context);
    const Rows &rows = std::get<Rows>(built);
    if (!rows.layout.wholeBlock())
      return {};
    const int64_t vectors = rows.graph.width.value() / rows.layout.vector;
    std::vector<SizeRange> result;
    for (const Spread &one : spreads(*context.form, region.ranks(), vectors, areFinished(rows.graph, rows.layout, region.ranks(), context)))
      result.push_back({rows.graph.rows, result.empty() ? 1 : result.back().most + 1, one.most});
    return result.size() == 1 || rows.graph.rows.isStatic() ? std::vector<SizeRange>() : result;
  }

  std::optional<OwnedRows> ownedRows(const Region &region, const KernelContext &context) const override {
    if (forms(region, context).size() < 3)
      return std::nullopt;
    KernelContext inForm = context;
    inForm.form = CollectiveForm::TwoShot;
    auto built = rowsOf(region, inForm);
    const Rows *rows = std::get_if<Rows>(&built);
    if (!rows || rows->layout.rowsPerBlock() != 1)
      return std::nullopt;
    return row::Exchange(inForm, region.ranks(), rows->graph, rows->layout).ownedRows(region, rows->graph);
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    auto built = rowsOf(region, context);
    const Rows &rows = std::get<Rows>(built);
    KernelWriter writer(region);
    const uint32_t blocks = rows.layout.clusterBlocks;
    if (blocks > 1) {
      writer.line("// The blocks of a cluster share a row.");
      writer.line(fmt::format("constexpr int blocks = cluster_blocks<{0}>, chunks = {0} / blocks, stride = {1} * blocks;",
                              blocks, rows.layout.stride()));
      writer.line(fmt::format("if (block_x() % {}u >= (u32)blocks)", blocks));
      writer.line("  return;");
      writer.line("cluster_arrive();");
    }
    row::Emitter emitter(context, rows.graph, rows.layout, writer,
                         blocks > 1 ? fmt::format("(block_x() / {}u)", blocks) : "block_x()");
    std::optional<row::Exchange> exchange;
    if (region.ranks() > 1)
      emitter.over(exchange.emplace(context, region.ranks(), rows.graph, rows.layout));
    emitter.emit();
    KernelDraft draft = writer.finish("collective", rows.layout.blockThreads, residentBlocks(rows.layout, exchange), blocks);
    draft.gridX = rows.graph.rows.ceilDiv(static_cast<int64_t>(rows.layout.rowsPerBlock())) * Dim(blocks);
    if (exchange)
      draft.collective = {*context.form, exchange->messageBytes, exchange->roundBytes, exchange->finished};
    return draft;
  }
};
} // namespace

const Schedule &collectiveSchedule() {
  static const CollectiveSchedule schedule;
  return schedule;
}

} // namespace fusion
