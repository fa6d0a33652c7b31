// The row schedule: ops that work along the last dim of a common set of rows, or several chains of them with
// rows of their own, which share out the blocks: the rotations of queries and keys, what a cache held and
// what is new.
#include "codegen/OutputSlices.h"
#include "codegen/schedule/RowBody.h"
#include "codegen/schedule/Schedules.h"

#include "llvm/ADT/IntEqClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <fmt/format.h>

#include <deque>
#include <numeric>

using namespace mlir;

namespace fusion {

namespace {
struct Part {
  Part(row::Graph graph, const row::Layout &layout) : graph(std::move(graph)), layout(layout) {}
  Part(Part &&) = default;
  Part(const Part &) = delete;
  row::Graph graph;
  row::Layout layout;
  Dim blocks() const { return graph.rows.ceilDiv(static_cast<int64_t>(layout.rowsPerBlock())); }
};
/// Nodes point at each other, so a part is never copied: a vector would copy as it grows.
using Parts = std::deque<Part>;

/// An op that only stands for a number, so that reading it ties no chains together.
bool isNumber(Operation *op) { return isa<nn::ConstantOp, nn::DimConstantOp>(op); }

/// Slices of outputs and the ops that compute them.
struct Chain {
  std::vector<OutputSlice> slices;
  llvm::SmallSetVector<Operation *, 8> ops;
};

/// The chains of a region that share no op, in the order of their last slices.
llvm::SmallVector<Chain, 0> chainsOf(const Region &region, llvm::ArrayRef<OutputSlice> slices) {
  const llvm::DenseSet<Value> inputs(region.inputs.begin(), region.inputs.end());
  llvm::IntEqClasses chainOfSlice(static_cast<unsigned>(slices.size()));
  llvm::MapVector<Operation *, unsigned> firstReader; // the slice that an op was found for
  for (auto [index, slice] : llvm::enumerate(slices)) {
    llvm::SmallVector<Value> pending{slice.value};
    while (!pending.empty()) {
      Value value = pending.pop_back_val();
      Operation *op = inputs.contains(value) ? nullptr : value.getDefiningOp();
      if (!op || isNumber(op))
        continue;
      auto [reader, isNew] = firstReader.insert({op, static_cast<unsigned>(index)});
      if (isNew)
        pending.append(op->operand_begin(), op->operand_end());
      else
        chainOfSlice.join(reader->second, static_cast<unsigned>(index));
    }
  }
  chainOfSlice.compress();
  llvm::SmallVector<size_t> last(chainOfSlice.getNumClasses()), order(last.size());
  for (size_t index = 0; index < slices.size(); ++index)
    last[chainOfSlice[static_cast<unsigned>(index)]] = index;
  std::iota(order.begin(), order.end(), size_t(0));
  llvm::sort(order, [&](size_t a, size_t b) { return last[a] < last[b]; });
  llvm::SmallVector<size_t> place(order.size());
  for (auto [index, chain] : llvm::enumerate(order))
    place[chain] = index;
  llvm::SmallVector<Chain, 0> chains(order.size());
  for (auto [index, slice] : llvm::enumerate(slices))
    chains[place[chainOfSlice[static_cast<unsigned>(index)]]].slices.push_back(slice);
  for (auto [op, slice] : firstReader)
    chains[place[chainOfSlice[slice]]].ops.insert(op);
  return chains;
}

std::variant<Part, std::string> partOf(const Region &region, const KernelContext &context) {
  auto graph = row::buildGraph(region, context);
  if (auto *reason = std::get_if<std::string>(&graph))
    return std::move(*reason);
  auto layout = row::chooseLayout(std::get<row::Graph>(graph), context.range);
  if (auto *reason = std::get_if<std::string>(&layout))
    return std::move(*reason);
  return Part(std::move(std::get<row::Graph>(graph)), std::get<row::Layout>(layout));
}

/// Whether two chains read one tensor as large as what they write: rows in common save reading it twice.
bool shareATensor(llvm::ArrayRef<Chain> chains, const Region &region, const KernelContext &context) {
  return llvm::any_of(region.inputs, [&](Value input) {
    return llvm::count_if(chains, [&](const Chain &chain) {
             return product(context.shape(input)) ==
                        product(context.shape(chain.slices[0].value)) &&
                    llvm::any_of(input.getUsers(), [&](Operation *user) { return chain.ops.contains(user); });
           }) > 1;
  });
}

/// Each chain over rows of its own.
std::variant<Parts, std::string> partsOf(llvm::ArrayRef<Chain> chains, const Region &region,
                                         const KernelContext &context) {
  Parts parts;
  for (const Chain &chain : chains) {
    Region own;
    own.inputs = region.inputs;
    own.anchor = region.anchor;
    for (Operation *op : region.ops)
      if (isNumber(op) || chain.ops.contains(op))
        own.ops.push_back(op);
    llvm::SmallVector<View> targets;
    std::vector<std::optional<RowPlacement>> placements;
    for (const OutputSlice &slice : chain.slices) {
      own.outputs.push_back(slice.value);
      targets.push_back(slice.target);
      placements.push_back(slice.placement);
    }
    KernelContext placed = context;
    placed.outputs = targets;
    placed.placements = placements;
    auto part = partOf(own, placed);
    if (auto *reason = std::get_if<std::string>(&part))
      return std::move(*reason);
    parts.push_back(std::move(std::get<Part>(part)));
    for (row::Store &store : parts.back().graph.stores)
      store.access.index = chain.slices[store.access.index].output;
  }
  // One size of block for all: what the longest rows want.
  uint32_t threads = 0;
  for (const Part &part : parts)
    threads = std::max(threads, part.layout.blockThreads);
  for (Part &part : parts)
    if (part.layout.blockThreads != threads) {
      auto layout = row::chooseLayout(part.graph, nullptr, threads);
      if (auto *reason = std::get_if<std::string>(&layout))
        return std::move(*reason);
      part.layout = std::get<row::Layout>(layout);
    }
  return std::move(parts);
}

/// Whether every output is one slice, contiguous in a buffer of its own.
bool isWhole(llvm::ArrayRef<OutputSlice> slices, const Region &region, const KernelContext &context) {
  return slices.size() == region.outputs.size() && llvm::all_of(slices, [&](const OutputSlice &slice) {
           return slice.value == region.outputs[slice.output] &&
                  slice.target == View::contiguous(slice.target.base, context.shape(slice.value));
         });
}

/// The chains apart, as a thread that holds rows of several runs out of registers; all over one set of rows
/// if they read a tensor in common, or fit no other way.
std::variant<Parts, std::string> partsOf(const Region &region, const KernelContext &context) {
  const llvm::SmallVector<OutputSlice> slices = outputSlicesOf(region, context);
  const llvm::SmallVector<Chain, 0> chains = chainsOf(region, slices);
  const bool whole = isWhole(slices, region, context);
  std::string why;
  if (!whole || (chains.size() > 1 && !shareATensor(chains, region, context))) {
    auto parts = partsOf(chains, region, context);
    if (std::holds_alternative<Parts>(parts) || !whole)
      return parts;
    why = std::get<std::string>(parts);
  }
  auto part = partOf(region, context);
  if (auto *reason = std::get_if<std::string>(&part))
    return why.empty() ? std::move(*reason) : why;
  Parts parts;
  parts.push_back(std::move(std::get<Part>(part)));
  return std::move(parts);
}

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
    prefetchRows(parts, interleaving, context.range);
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
