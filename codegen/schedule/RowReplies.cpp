// Finished rows on their way from their owners: the stores of a row whose owner alone adds, norms and quantises it. Elsewhere
// the block takes what its stores would write, and ends.
#include "codegen/schedule/RowEmitter.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::row {

int64_t elementsOfRow(const Graph &graph, const Store &store) {
  const Access &access = store.access;
  return access.view.strides.back() == Dim(0) ? 1 : graph.width.value() / access.divisors.back();
}

/// An integer may have any bits, so that none says that it has not come yet; a float's are those of a NaN.
static bool canBeSent(const Store &store, const Layout &layout) {
  const Access &access = store.access;
  if (!isFloat(access.type) || access.type == DType::F64 || !store.condition.empty() || !store.into.empty())
    return false;
  const bool perElement = access.view.strides.back() != Dim(0) && access.divisors.back() == 1;
  return !perElement || layout.vector == 1 || isVectorAccess(access, layout.vector);
}

/// Whether a finished row can be sent and is short enough.
bool Exchange::findReplies(const Graph &graph, const Layout &layout, const KernelContext &context) {
  const ArrayRef<bool> ownerOnly = context.ownerOnly;
  bool waitsForAll = false; // an area is safe from the next rounds if whoever gets a row has waited for all ranks
  for (const Store &store : graph.stores) {
    if (store.access.index < ownerOnly.size() && ownerOnly[store.access.index])
      continue;
    if (!canBeSent(store, layout))
      return false;
    waitsForAll |= elementsOfRow(graph, store) == graph.width.value();
    replies[&store] = replyBytes;
    const int64_t bytes = elementsOfRow(graph, store) * static_cast<int64_t>(byteSize(store.access.type));
    replyBytes += static_cast<int64_t>(llvm::alignTo(static_cast<uint64_t>(bytes), 16));
  }
  return waitsForAll && (context.equalReplies ? replyBytes <= rowBytes : replyBytes < rowBytes);
}

/// Row after row, each as wide as the graph's.
static bool isRowByRow(const Access &access, const Graph &graph) {
  return access.view.isContiguous() && access.view.offset == Dim(0) && access.columnDims == 1 &&
         access.view.strides.back() == Dim(1) && product(access.view.shape) == graph.rows * graph.width &&
         llvm::all_of(access.divisors, [](int64_t divisor) { return divisor == 1; });
}

OwnedRows Exchange::ownedRows(const Region &region, const Graph &graph) const {
  OwnedRows owned{graph.rows, graph.width.value(), messageBytes, finished, finished && replyBytes < rowBytes, {}, {}};
  for (unsigned input = 0; input < region.inputs.size(); ++input) {
    bool readRowByRow = true; // what each rank sends of its own is no part of what owners read
    for (const Node &node : graph.nodes)
      if (node.kind == Node::Kind::Load && !node.summed && node.access.index == input)
        readRowByRow &= &node != sum->operands[0] && node.level == Level::Element && isRowByRow(node.access, graph);
    owned.inputs.push_back(readRowByRow);
  }
  for (unsigned output = 0; output < region.outputs.size(); ++output) {
    auto writes = [&](const Store &store) { return store.access.index == output; };
    owned.outputs.push_back(llvm::count_if(graph.stores, writes) == 1 &&
                            llvm::all_of(graph.stores, [&](const Store &store) {
                              return !writes(store) || (store.condition.empty() && store.into.empty() &&
                                                        isRowByRow(store.access, graph));
                            }));
  }
  return owned;
}

/// Where in a slot the store's elements from `column` on travel.
std::string Emitter::toReply(const Store *store, const std::string &column) {
  const int64_t first = exchange->replies.at(store), divisor = store->access.divisors.back();
  const std::string start = first == 0 ? "inReply" : fmt::format("inReply + {}", first);
  if (store->access.view.strides.back() == Dim(0))
    return start;
  return fmt::format("{} + {} * {}", start, divisor == 1 ? column : fmt::format("({} / {})", column, divisor),
                     byteSize(store->access.type));
}

/// `values`: a vector of what is sent, as sent.
void Emitter::sendReply(const Store *store, const std::string &column, const std::string &guard,
                        const std::string &values) {
  writer.line(fmt::format("{}send_to_all(meeting, {}, {}, {});", guard, toReply(store, column),
                          writer.size(exchange->replySlotBytes), values));
}

void Emitter::storeReply(const Store *store, const std::string &column, const std::string &guard,
                         const std::string &value) {
  const Access &access = store->access;
  const std::string type = sourceType(access.type).str(), name = writer.fresh("one");
  writer.line(fmt::format("Vec<{}, 1> {};", type, name));
  writer.line(fmt::format("{}[0] = {};", name,
                          registerType(access.type) == type ? value : fmt::format("from_f32<{}>({})", type, value)));
  const std::string reply = local(fmt::format("Vec<{}, 1>", type), "reply", fmt::format("as_sent({})", name));
  sendReply(store, column, guard, reply);
  writer.line(fmt::format("{}store({} + {}, {}[0]);", guard, pointerNames.at(store),
                          column.empty() ? "0" : columnOffset(access, column), reply));
}

void Emitter::takeReply(const Store *store, const std::string &column, const std::string &guard) {
  const Access &access = store->access;
  const bool perElement = access.view.strides.back() != Dim(0) && access.divisors.back() == 1;
  const int64_t vector = perElement ? layout.vector : 1;
  const std::string offset = access.view.strides.back() == Dim(0) ? "0" : columnOffset(access, column),
                    reply = fmt::format("row_of_owner<{}, {}>(meeting, owner, {}, {}, {})", sourceType(access.type).str(),
                                        vector, toReply(store, column), writer.size(exchange->replySlotBytes), row);
  writer.line(fmt::format("{}store{}({} + {}, {}{});", guard, vector > 1 ? "_vec" : "", pointerNames.at(store), offset,
                          reply, vector > 1 ? "" : "[0]"));
}

void Emitter::takeReplies() {
  writer.line("// The owner sends what it makes of the row.");
  writer.line("if (owner != meeting.rank) {");
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; ++k) {{", chunkCount()));
  writer.line(fmt::format("const i64 column = {};", chunkColumn()));
  for (const auto &sweep : plan.stores)
    for (const Store *store : sweep) {
      if (!isReply(store))
        continue;
      std::string condition = guard(/*ofRows=*/true);
      if (store->access.divisors.back() != 1)
        condition += fmt::format("if (column % {} == 0) ", graph.groupSize);
      takeReply(store, "column", condition);
    }
  writer.line("}");
  for (const Store *store : plan.rowStores)
    if (isReply(store))
      takeReply(store, "", fmt::format("if ({}{} == 0) ", active.empty() ? "" : active + " && ", thread));
  if (layout.inCluster())
    writer.line("cluster_wait();");
  writer.line("return;");
  writer.line("}");
}

} // namespace fusion::row
