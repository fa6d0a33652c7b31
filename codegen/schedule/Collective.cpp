// The collective schedule: a sum over ranks and what the row schedule can do with it, as one kernel per rank; or, behind a
// sum by the communication library, as a kernel of any schedule.
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

/// 1024 threads have 64 registers each: too few to wait for several ranks with.
constexpr uint32_t mostThreads = 512;

/// Shares each row out to up to `most` blocks: with few rows, one block alone would take long to send and to look for them.
void spread(Rows &rows, uint32_t most) {
  const int64_t vectors = rows.graph.width.value() / rows.layout.vector;
  for (uint32_t blocks = most; blocks > 1 && rows.layout.wholeBlock(); blocks /= 2)
    if (vectors % (32 * blocks) == 0 && vectors / blocks >= 64) {
      rows.layout.blockThreads = rows.layout.threadsPerRow = static_cast<uint32_t>(vectors) / blocks;
      rows.layout.chunks = rows.layout.clusterBlocks = blocks;
      return;
    }
}

/// The compiler, left to itself, spills rather than take the registers that the waits in the middle ask for.
uint32_t residentBlocks(const row::Layout &layout) {
  constexpr uint32_t registers = 65536, perThread = 168;
  return std::max(1u, registers / (layout.blockThreads * perThread));
}

/// The region as rows that start from the sum, or why it is not.
std::variant<Rows, std::string> rowsOf(const Region &region, KernelContext context, CollectiveForm form) {
  context.form = form;
  auto graph = row::buildGraph(region, context);
  if (auto *reason = std::get_if<std::string>(&graph))
    return std::move(*reason);
  Rows rows{std::move(std::get<row::Graph>(graph)), {}};
  auto layout = row::chooseLayout(rows.graph);
  if (auto *reason = std::get_if<std::string>(&layout))
    return std::move(*reason);
  rows.layout = std::get<row::Layout>(layout);
  if (rows.layout.blockThreads > mostThreads) {
    layout = row::chooseLayout(rows.graph, mostThreads);
    if (auto *reason = std::get_if<std::string>(&layout))
      return std::move(*reason);
    rows.layout = std::get<row::Layout>(layout);
  }
  if (region.ranks() == 1)
    return std::move(rows);
  if (llvm::none_of(rows.graph.nodes, [](const row::Node &node) { return node.summed; }))
    return std::string("nothing that leaves the region is made of the sum");
  if (!rows.layout.inRegisters)
    return std::string("the rows do not fit in registers");
  spread(rows, form == CollectiveForm::OneShot ? 8 : 1);
  return std::move(rows);
}

class CollectiveSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "collective"; }

  std::optional<std::string> refuses(const Region &region, const KernelContext &context) const override {
    auto found = sumOf(region);
    if (auto *reason = std::get_if<std::string>(&found))
      return *reason;
    auto sum = std::get<nn::AllReduceOp>(found);
    const DType type = dtype(sum.getX());
    if (!isFloat(type) || type == DType::F64 || dtype(sum.getY()) != type)
      return "nn.all_reduce of " + std::string(fusion::name(type));
    auto rows = rowsOf(region, context, CollectiveForm::OneShot);
    if (auto *reason = std::get_if<std::string>(&rows))
      return *reason;
    return readsPacked(region, context);
  }

  std::vector<CollectiveForm> forms(const Region &region, const KernelContext &context) const override {
    if (region.ranks() == 1)
      return {};
    return {CollectiveForm::OneShot, CollectiveForm::TwoShot};
  }

  KernelDraft emit(const Region &region, const KernelContext &context) const override {
    const CollectiveForm form = context.form.value_or(CollectiveForm::OneShot);
    auto built = rowsOf(region, context, form);
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
      emitter.over(exchange.emplace(form, region.ranks(), rows.graph, rows.layout));
    emitter.emit();
    KernelDraft draft = writer.finish("collective", rows.layout.blockThreads, residentBlocks(rows.layout), blocks);
    draft.gridX = rows.graph.rows.ceilDiv(static_cast<int64_t>(rows.layout.rowsPerBlock())) * Dim(blocks);
    if (exchange)
      draft.collective = {form, exchange->messageBytes, exchange->areaBytes};
    return draft;
  }

private:
  static std::variant<nn::AllReduceOp, std::string> sumOf(const Region &region) {
    nn::AllReduceOp found;
    for (Operation *op : region.ops)
      if (auto sum = dyn_cast<nn::AllReduceOp>(op)) {
        if (found)
          return std::string("two sums over ranks");
        found = sum;
      }
    if (!found)
      return std::string("no nn.all_reduce in it");
    return found;
  }
};
} // namespace

const Schedule &collectiveSchedule() {
  static const CollectiveSchedule schedule;
  return schedule;
}

} // namespace fusion
