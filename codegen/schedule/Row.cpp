// The row schedule: ops that work along the last dim of a common set of rows, or several chains of them with
// rows of their own, which share out the blocks: the rotations of queries and keys, what a cache held and
// what is new.
#include "codegen/schedule/RowBody.h"
#include "codegen/schedule/RowParts.h"
#include "codegen/schedule/Schedules.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion {

using row::Part, row::Parts, row::partsOf;

namespace {
/// Parts whose blocks take turns, so that what lies together is read together: of each part, so many blocks
/// for one of the part with the fewest rows.
struct Interleaving {
  llvm::SmallVector<int64_t> shares; ///< by part; empty: one part after the other
  Dim rows;                          ///< of that part
  int64_t all = 0;                   ///< sum of the shares
  int64_t bytes = 0; ///< that all read for one of these rows, ahead of which more can be fetched; 0: nothing
};

Interleaving interleavingOf(const Parts &parts) {
  auto isShort = [&](const Part &part) {
    return !part.layout.wholeBlock() && part.layout.rowsPerBlock() == parts.front().layout.rowsPerBlock();
  };
  if (!llvm::all_of(parts, isShort))
    return {};
  for (const Part &fewest : parts) {
    Interleaving interleaving;
    interleaving.rows = fewest.graph.rows;
    bool fetches = true;
    for (const Part &part : parts) {
      const std::optional<Dim> share = part.graph.rows.dividedBy(fewest.graph.rows);
      if (!share || !share->isStatic() || share->value() < 1 || share->value() > 64)
        break;
      const int64_t bytes = row::bytesFetched(part.graph);
      interleaving.shares.push_back(share->value());
      interleaving.all += share->value();
      interleaving.bytes += bytes * share->value();
      fetches &= part.layout.inRegisters && bytes > 0;
    }
    if (interleaving.shares.size() == parts.size()) {
      interleaving.bytes *= static_cast<int64_t>(fetches);
      return interleaving;
    }
  }
  return {};
}

/// The fewest rows of Interleaving that are worth fetching ahead: what is read fills half an L2.
int64_t manyRows(const Interleaving &interleaving) {
  return static_cast<int64_t>(llvm::divideCeil(32 << 20, interleaving.bytes));
}

/// Lets the parts fetch ahead if the kernel is for so many rows.
void prefetchRows(Parts &parts, const Interleaving &interleaving, const SizeRange *range) {
  const int64_t least = interleaving.rows.constant().value_or(range ? range->least : 0);
  if (interleaving.bytes == 0 || least < manyRows(interleaving))
    return;
  for (auto [part, share] : llvm::zip(parts, interleaving.shares))
    part.layout.prefetchDistance = share * std::max<int64_t>(1, row::prefetchBytes / interleaving.bytes);
}

/// Of heads of 16-bit elements in registers, some of which are turned, the elements that a thread has; 0 for
/// others.
int64_t turnedElements(const Parts &parts) {
  auto turns = [](const Part &part) {
    return llvm::any_of(part.graph.nodes,
                        [](const row::Node &node) { return node.kind == row::Node::Kind::Move; });
  };
  auto isHalf = [](const row::Node &node) {
    return node.kind != row::Node::Kind::Load || byteSize(node.access.type) == 2;
  };
  int64_t most = 0;
  for (const Part &part : parts) {
    if (!part.layout.inRegisters || part.layout.wholeBlock() || !llvm::all_of(part.graph.nodes, isHalf))
      return 0;
    most = std::max<int64_t>(most, part.layout.chunks * part.layout.vector);
  }
  return llvm::any_of(parts, turns) ? most : 0;
}

/// Where the compiler would rather spill than take the registers: for rows held in registers with more than
/// two results; before sm_90 also for heads, whose registers elsewhere stay as they are.
uint32_t residentBlocks(const Parts &parts) {
  constexpr uint32_t registers = 65536, ofResults = 112, ofHeads = 64, ofLongHeads = 96;
  const row::Layout &layout = parts.front().layout;
  const bool crowded = llvm::any_of(
      parts, [](const Part &part) { return part.layout.inRegisters && part.graph.stores.size() > 2; });
  const int64_t turned = turnedElements(parts);
  uint32_t perThread = crowded ? ofResults : 0;
  if (!crowded && turned > 0 && turned <= 32)
    perThread = turned <= 16 ? ofHeads : ofLongHeads;
  return perThread ? std::max(1u, registers / (layout.blockThreads * perThread)) : 0;
}

/// One part after the other; returns the blocks of all.
Dim emitApart(const Region &region, const KernelContext &context, const Parts &parts,
              body::KernelSource &source, body::Code &code) {
  code.line("i64 block = block_x();");
  Dim blocks = 0;
  for (auto [index, part] : llvm::enumerate(parts)) {
    const bool last = &part == &parts.back();
    const std::string count = last ? "" : source.size(part.blocks());
    code.line(last ? "{" : fmt::format("if (block < {}) {{", count));
    code.line(
        row::BodyPrinter(region, context, part.graph, part.layout, source, "Part" + std::to_string(index))
            .print("block"));
    if (!last)
      code.line("return;");
    code.line("}");
    if (!last)
      code.line(fmt::format("block -= {};", count));
    blocks = blocks + part.blocks();
  }
  return blocks;
}

/// Returns the blocks of all. A part's last blocks may have no rows, where it ends within a turn.
Dim emitInterleaved(const Region &region, const KernelContext &context, const Parts &parts,
                    const Interleaving &interleaving, body::KernelSource &source, body::Code &code) {
  code.line(fmt::format("const u32 turn = block_x() % {0}u, round = block_x() / {0}u;", interleaving.all));
  int64_t before = 0;
  for (auto [index, part] : llvm::enumerate(parts)) {
    const int64_t share = interleaving.shares[index];
    const bool last = &part == &parts.back();
    code.line(last ? "{" : fmt::format("if (turn < {}) {{", before + share));
    const std::string block = share == 1 ? "round"
                                         : fmt::format("(i64)round * {} + turn{}", share,
                                                       before == 0 ? "" : fmt::format(" - {}", before));
    code.line(
        row::BodyPrinter(region, context, part.graph, part.layout, source, "Part" + std::to_string(index))
            .print(block));
    if (!last)
      code.line("return;");
    code.line("}");
    before += share;
  }
  return interleaving.rows.ceilDiv(static_cast<int64_t>(parts.front().layout.rowsPerBlock())) *
         interleaving.all;
}

class RowSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "row"; }
  bool concerns(const Region &region) const override { return !holdsProducts(region); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    auto parts = partsOf(region, context);
    if (auto *reason = std::get_if<std::string>(&parts))
      return refusal(*reason);
    if (auto reason = readsPacked(region, context))
      return refusal(*reason);
    SchedulePlan plan{[&region](const KernelContext &context) { return emit(region, context); }};
    plan.batchInvariant = true; // one layout
    plan.split = [&region, context, emit = plan.emit] {
      return alternativesFor(ranges(region, context), region, emit);
    };
    return plan;
  }

private:
  static std::vector<SizeRange> ranges(const Region &region, const KernelContext &context) {
    auto built = partsOf(region, context);
    const Parts &parts = std::get<Parts>(built);
    if (context.batchInvariant)
      return {};
    if (const Interleaving interleaving = interleavingOf(parts);
        interleaving.bytes > 0 && !interleaving.rows.isStatic())
      return {{interleaving.rows, 1, manyRows(interleaving) - 1},
              {interleaving.rows, manyRows(interleaving), INT64_MAX}};
    return parts.size() == 1 ? row::rowRanges(parts[0].graph, parts[0].layout) : std::vector<SizeRange>();
  }

  static KernelDraft emit(const Region &region, const KernelContext &context) {
    auto built = partsOf(region, context);
    Parts &parts = std::get<Parts>(built);
    const Interleaving interleaving = interleavingOf(parts);
    prefetchRows(parts, interleaving, context.range());
    body::KernelSource source(region, context.inputs);
    body::Code code;
    Dim blocks = parts[0].blocks();
    if (parts.size() == 1)
      code.line(row::BodyPrinter(region, context, parts[0].graph, parts[0].layout, source).print());
    else
      blocks = interleaving.shares.empty() ? emitApart(region, context, parts, source, code)
                                    : emitInterleaved(region, context, parts, interleaving, source, code);
    KernelDraft draft = source.finish({.schedule = "row",
                                       .code = code.text(),
                                       .name = body::kernelName(region, context),
                                       .threads = parts.front().layout.blockThreads,
                                       .residentBlocks = residentBlocks(parts)});
    draft.gridX = blocks;
    draft.launchesEarly = context.mayLaunchEarly;
    return draft;
  }
};
} // namespace

const Schedule &rowSchedule() {
  static const RowSchedule schedule;
  return schedule;
}

} // namespace fusion
