// The sum over ranks that the rows of a kernel start from: each thread sends, awaits and adds the columns that it holds.
#include "codegen/schedule/RowEmitter.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::row {

Exchange::Exchange(const KernelContext &context, int64_t ranks, const Graph &graph, const Layout &layout)
    : form(*context.form), ranks(ranks), blocks(graph.rows.ceilDiv(static_cast<int64_t>(layout.rowsPerBlock()))) {
  for (const Node &node : graph.nodes)
    if (node.summed)
      sum = &node;
  const int64_t elementBytes = static_cast<int64_t>(byteSize(sum->access.type));
  rowBytes = static_cast<int64_t>(llvm::alignTo(static_cast<uint64_t>(graph.width.value() * elementBytes), 16));
  messageBytes = graph.rows * graph.width * Dim(elementBytes);
  if (form == CollectiveForm::OneShot) {
    slotBytes = graph.rows * Dim(rowBytes);
    roundBytes = areaBytes = slotBytes * Dim(ranks - 1);
  } else { // what is summed here, then what comes back from the owners
    const Dim rows = blocks.ceilDiv(ranks) * Dim(static_cast<int64_t>(layout.rowsPerBlock()));
    slotBytes = rows * Dim(rowBytes);
    finished = findReplies(graph, layout, context);
    if (!finished)
      replyBytes = rowBytes;
    replySlotBytes = rows * Dim(replyBytes);
    areaBytes = (slotBytes + replySlotBytes) * Dim(ranks - 1);
    roundBytes = slotBytes * Dim(2 * (ranks - 1));
  }
}

/// The thread's part of what this rank adds, in chunk `k`.
std::string Emitter::ownPart() {
  const Node *addend = exchange->sum->operands[0];
  const std::string type = sourceType(addend->access.type).str(), &from = pointerNames.at(addend);
  auto early = preloaded.find(addend);
  if (vectors() && early != preloaded.end())
    return early->second + "[k]";
  if (vectors() && isVectorAccess(addend->access, layout.vector))
    return local(fmt::format("Vec<{}, {}>", type, layout.vector), "mine",
                 fmt::format("load_vec<{}, {}>({} + {})", type, layout.vector, from,
                             columnOffset(addend->access, "column")));
  const std::string mine = writer.fresh("mine");
  writer.line(fmt::format("Vec<{}, {}> {};", type, layout.vector, mine));
  if (vectors()) {
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", layout.vector));
    const std::string offset = columnOffset(addend->access, "(column + i)");
    writer.line(fmt::format("{}[i] = load({} + {});", mine, from, offset));
    writer.line("}");
  } else {
    const std::string element = early != preloaded.end()
                                    ? early->second + "[k]"
                                    : fmt::format("load({} + {})", from, columnOffset(addend->access, "column"));
    writer.line(fmt::format("{}[0] = {};", mine, element));
  }
  return mine;
}

/// A loop over the thread's chunks; `body` writes what is in it, given where a chunk lies in a slot.
void Emitter::forChunks(llvm::function_ref<void(const std::string &at)> body) {
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; ++k) {{", chunkCount()));
  writer.line(fmt::format("const i64 column = {};", chunkColumn()));
  body(fmt::format("inSlot + column * {}", byteSize(exchange->sum->access.type)));
  writer.line("}");
}

void Emitter::meetRanks() {
  writer.line(fmt::format("Meeting<{0}> meeting = meet_ranks<{0}>({1});", exchange->ranks, writer.exchange()));
}

/// Clears what the round before has left, and counts this one.
void Emitter::endRound() {
  const std::string blocks = writer.size(exchange->blocks), bytes = writer.size(exchange->areaBytes);
  if (layout.inCluster())
    writer.line(fmt::format("end_round<{}>(meeting, (u32)({} * blocks + cluster_rank()), (u32)({} * blocks), {});",
                            layout.blockThreads, block, blocks, bytes));
  else
    writer.line(fmt::format("end_round<{}>(meeting, (u32){}, (u32){}, {});", layout.blockThreads, block, blocks, bytes));
}

void Emitter::exchangeRows() {
  const Node *sum = exchange->sum;
  const std::string type = sourceType(sum->access.type).str(), name = writer.fresh("sum");
  writer.blank();
  comment(sum);
  const std::string count = vectors() ? fmt::format("Vec<{}, {}> {}[{}];", type, layout.vector, name, chunkCount())
                                      : fmt::format("{} {}[{}];", type, name, chunkCount());
  auto keep = [&](const std::string &value) {
    writer.line(fmt::format("{}[k] = {}{};", name, value, vectors() ? "" : "[0]"));
  };
  if (exchange->form == CollectiveForm::OneShot)
    sumEverywhere(count, keep);
  else
    sumAtOwners(count, keep);
  preloaded[sum] = name;
  if (layout.inCluster())
    writer.line("cluster_wait();");
}

void Emitter::sumEverywhere(const std::string &declaration, llvm::function_ref<void(const std::string &)> keep) {
  const std::string slot = writer.size(exchange->slotBytes);
  writer.line(fmt::format("const i64 inSlot = {} * {};", row, exchange->rowBytes));
  forChunks([&](const std::string &at) {
    const std::string mine = ownPart();
    writer.line(fmt::format("{}send_to_all(meeting, {}, {}, {});", guard(/*ofRows=*/true), at, slot, mine));
  });
  endRound();
  writer.line(declaration);
  forChunks([&](const std::string &at) {
    const std::string mine = ownPart();
    keep(fmt::format("sum_of_parts(meeting, {}, {}, {}, {})", at, slot, mine, row));
  });
}

/// Blocks take turns at being owners of their rows; what comes back from them lies behind what they get.
void Emitter::sumAtOwners(const std::string &declaration, llvm::function_ref<void(const std::string &)> keep) {
  const std::string slot = writer.size(exchange->slotBytes),
                    back = writer.size(exchange->slotBytes * Dim(exchange->ranks - 1)),
                    type = fmt::format("{}, {}", sourceType(exchange->sum->access.type).str(), layout.vector);
  const uint32_t rows = layout.rowsPerBlock();
  writer.line(fmt::format("const u32 owner = (u32)({} % {});", block, exchange->ranks));
  const std::string first = rows == 1 ? "" : fmt::format(" * {} + ({} - (i64){} * {})", rows, row, block, rows),
                    place = fmt::format("((i64){} / {}{})", block, exchange->ranks, first);
  writer.line(fmt::format("const i64 inSlot = {} * {};", place, exchange->rowBytes));
  if (exchange->finished)
    writer.line(fmt::format("const i64 inReply = {} + {} * {};", back, place, exchange->replyBytes));
  llvm::SmallVector<const Node *> owners;
  llvm::copy_if(preloads, std::back_inserter(owners), [&](const Node *load) { return isOwners(load); });
  for (const Node *load : owners)
    declarePreload(load);
  writer.line("if (owner != meeting.rank) {");
  forChunks([&](const std::string &at) {
    const std::string mine = ownPart();
    writer.line(fmt::format("{}send_to_owner(meeting, owner, {}, {}, {});", guard(/*ofRows=*/true), at, slot, mine));
  });
  if (!owners.empty())
    writer.line("} else {");
  for (const Node *load : owners)
    fillPreload(load, /*settled=*/false);
  writer.line("}");
  endRound();
  if (exchange->finished)
    takeReplies();
  writer.line(declaration);
  if (!exchange->finished)
    writer.line("if (owner == meeting.rank) {");
  forChunks([&](const std::string &at) {
    const std::string mine = ownPart();
    const std::string total = local(fmt::format("Vec<{}>", type), "total",
                                    fmt::format("as_sent(sum_of_parts(meeting, {}, {}, {}, {}))", at, slot, mine, row));
    if (!exchange->finished)
      writer.line(fmt::format("{}send_to_all(meeting, {} + {}, {}, {});", guard(/*ofRows=*/true), back, at, slot, total));
    keep(total);
  });
  if (exchange->finished)
    return;
  writer.line("} else {");
  forChunks([&](const std::string &at) {
    keep(fmt::format("row_of_owner<{}>(meeting, owner, {} + {}, {}, {})", type, back, at, slot, row));
  });
  writer.line("}");
}

} // namespace fusion::row
