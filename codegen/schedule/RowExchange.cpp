// Rows that start from a sum over ranks: what the ranks send each other, and the functions of a body that do
// it.
#include "codegen/schedule/RowBody.h"

#include "llvm/Support/MathExtras.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::row {

/// How many elements of a row a store writes.
static int64_t elementsOfRow(const Graph &graph, const Store &store) {
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

/// Whether the row can be gathered after the ops on the sum, and is short enough.
bool Exchange::findGathered(const Graph &graph, const Layout &layout, const KernelContext &context) {
  const ArrayRef<bool> scattered = context.scattered;
  bool waitsForAll =
      false; // an area is safe from the next rounds if whoever gets a row has waited for all ranks
  for (const Store &store : graph.stores) {
    if (store.access.index < scattered.size() && scattered[store.access.index])
      continue;
    if (!canBeSent(store, layout))
      return false;
    waitsForAll |= elementsOfRow(graph, store) == graph.width.value();
    gathered[&store] = gatheredBytes;
    const int64_t bytes = elementsOfRow(graph, store) * static_cast<int64_t>(byteSize(store.access.type));
    gatheredBytes += static_cast<int64_t>(llvm::alignTo(static_cast<uint64_t>(bytes), 16));
  }
  return waitsForAll && (context.gathersFullSizeRows ? gatheredBytes <= rowBytes : gatheredBytes < rowBytes);
}

/// Row after row, each as wide as the graph's.
static bool isRowByRow(const Access &access, const Graph &graph) {
  return access.view.isContiguous() && access.view.offset == Dim(0) && access.columnDims == 1 &&
         access.view.strides.back() == Dim(1) && product(access.view.shape) == graph.rows * graph.width &&
         llvm::all_of(access.divisors, [](int64_t divisor) { return divisor == 1; });
}

ScatteredRows Exchange::scatteredRows(const Region &region, const Graph &graph) const {
  ScatteredRows owned{
      graph.rows, graph.width.value(), messageBytes, gathersRows, gathersRows && gatheredBytes < rowBytes, {},
      {}};
  for (unsigned input = 0; input < region.inputs.size(); ++input) {
    bool readRowByRow = true; // apart from the addends, of which each rank reads all rows
    for (const Node &node : graph.nodes)
      if (node.kind == Node::Kind::Load && !node.summed && node.access.index == input)
        readRowByRow &=
            &node != sum->operands[0] && node.level == Level::Element && isRowByRow(node.access, graph);
    owned.inputs.push_back(readRowByRow);
  }
  for (unsigned output = 0; output < region.outputs.size(); ++output) {
    auto writes = [&](const Store &store) { return store.access.index == output; };
    owned.outputs.push_back(
        llvm::count_if(graph.stores, writes) == 1 && llvm::all_of(graph.stores, [&](const Store &store) {
          return !writes(store) ||
                 (store.condition.empty() && store.into.empty() && isRowByRow(store.access, graph));
        }));
  }
  return owned;
}

int64_t sentRowBytes(int64_t width, DType type) {
  return static_cast<int64_t>(llvm::alignTo(static_cast<uint64_t>(width) * byteSize(type), 16));
}

Exchange::Exchange(const KernelContext &context, int64_t ranks, const Graph &graph, const Layout &layout)
    : algorithm(*context.algorithm), ranks(ranks),
      blocks(graph.rows.ceilDiv(static_cast<int64_t>(layout.rowsPerBlock()))) {
  for (const Node &node : graph.nodes)
    if (node.summed)
      sum = &node;
  rowBytes = sentRowBytes(graph.width.value(), sum->access.type);
  messageBytes = graph.rows * graph.width * Dim(static_cast<int64_t>(byteSize(sum->access.type)));
  isSent = context.isSent && layout.wholeBlock() && layout.vector * byteSize(sum->access.type) % 4 == 0;
  if (algorithm == CollectiveAlgorithm::OneShot) {
    slotBytes = graph.rows * Dim(rowBytes);
    roundBytes = slotBytes * Dim(ranks); // with what a rank sends itself, where it does
    areaBytes = slotBytes * Dim(isSent ? ranks : ranks - 1);
  } else { // what is summed here, then what is gathered from the others
    const Dim rows = blocks.ceilDiv(ranks) * Dim(static_cast<int64_t>(layout.rowsPerBlock()));
    slotBytes = rows * Dim(rowBytes);
    gathersRows = findGathered(graph, layout, context);
    if (!gathersRows)
      gatheredBytes = rowBytes;
    gatherSlotBytes = rows * Dim(gatheredBytes);
    areaBytes = (slotBytes + gatherSlotBytes) * Dim(ranks - 1);
    roundBytes = slotBytes * Dim(2 * (ranks - 1));
  }
}

void Exchange::configure(body::Config &config) const {
  config.set("ranks", ranks);
  config.set("i64", "rowBytes", std::to_string(rowBytes));
  if (isSent) {
    config.set("isSent", true);
    config.set("waitsLast", true);
  }
  if (algorithm != CollectiveAlgorithm::TwoShot)
    return;
  config.set("twoShot", true);
  config.set("gathersRows", gathersRows);
  config.set("i64", "gatheredBytes", std::to_string(gatheredBytes));
}

/// A sum whose addends have been sent: they are not read in memory.
bool BodyPrinter::isReceived(const Node *node) const { return node->summed && exchange && exchange->isSent; }

/// The thread's part of what this rank adds.
std::string BodyPrinter::ownPart() {
  const Node *addend = exchange->sum->operands[0];
  const std::string type = body::spelling(addend->access.type);
  if (preloaded.contains(addend))
    return vectors() ? preloaded.at(addend) + "[at.k]" : fmt::format("{{{}[at.k]}}", preloaded.at(addend));
  if (vectors() && isVectorAccess(addend->access, layout.vector))
    return loadVector(addend, "at.column", layout.vector, /*early=*/false);
  const std::string mine = writer.fresh("mine");
  writer.line(fmt::format("Vec<{}, {}> {};", type, layout.vector, mine));
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", layout.vector));
  const std::string offset = columnOffset(addend->access, "(at.column + i)");
  writer.line(fmt::format("{}[i] = load({} + {});", mine, pointerNames.at(addend), offset));
  writer.line("}");
  return mine;
}

void BodyPrinter::exchangeFunctions() {
  const Node *sum = exchange->sum;
  const std::string type = body::spelling(sum->access.type),
                    vector = fmt::format("Vec<{}, {}>", type, layout.vector);
  rowMembers.emplace_back(fmt::format("AllReduceRow<{}Config> ", name), "ranks");
  auto size = [&](const char *name, const Dim &dim) {
    writer.method(fmt::format("DEVICE i64 {}() const", name), writer.size(dim));
  };
  size("blocks", exchange->blocks);
  size("slot_bytes", exchange->slotBytes);
  size("area_bytes", exchange->areaBytes);
  if (exchange->algorithm == CollectiveAlgorithm::TwoShot)
    size("gather_slot_bytes", exchange->gatherSlotBytes);
  function(fmt::format("{} addend(const RowChunk &at, const Row &row, const Live &live)", vector), [&] {
    comment(sum);
    const std::string part = isReceived(sum) ? vector + "()" : ownPart();
    writer.line("return " + part + ";");
  });
  preloaded[sum] = liveMember(vectorOf(sum->access.type), "sum", heldVectors(sum));
  function(fmt::format("void set_sum(const RowChunk &at, Live &live, const {} &sum)", vector),
           [&] { writer.line(fmt::format("{}[at.k] = sum{};", preloaded.at(sum), vectors() ? "" : "[0]")); });
  if (!exchange->gathersRows)
    return;
  function(
      "void request(OfReducer, const RowChunk &at, const Row &row, Live &live)",
      [&] {
        for (const Node *load : preloads)
          if (isOfReducer(load))
            fillPreload(load, /*early=*/false);
      },
      /*mayBeMissing=*/true);
  gatherFunctions();
}

/// The stores of a row that another rank has normalised.
void BodyPrinter::gatherFunctions() {
  function("void gather(const RowChunk &at, const Row &row)", [&] {
    for (const auto &pass : plan.stores)
      for (const Store *store : pass) {
        if (!isGathered(store))
          continue;
        std::string condition = guard(/*ofRows=*/true);
        if (store->access.divisors.back() != 1)
          condition += fmt::format("if (at.column % {} == 0) ", graph.groupSize);
        storeFromReducer(store, "at.column", condition);
      }
  });
  function("void gather(const Row &row)", [&] {
    for (const Store *store : plan.rowStores)
      if (isGathered(store))
        storeFromReducer(store, "", "");
  });
}

/// Where in the row's part of a slot the store's elements from `column` on travel.
std::string BodyPrinter::gatherOffset(const Store *store, const std::string &column) {
  const int64_t first = exchange->gathered.at(store), divisor = store->access.divisors.back();
  if (store->access.view.strides.back() == Dim(0))
    return std::to_string(first);
  return fmt::format("{}{} * {}", first == 0 ? "" : fmt::format("{} + ", first),
                     divisor == 1 ? column : fmt::format("({} / {})", column, divisor),
                     byteSize(store->access.type));
}

/// Sends and stores one element.
void BodyPrinter::storeGathered(const Store *store, const std::string &column, const std::string &guard,
                                const std::string &value) {
  const Access &access = store->access;
  const std::string type = body::spelling(access.type),
                    offset = column.empty() ? "0" : columnOffset(access, column),
                    sent = scalar::isNarrow(access.type) ? body::toElement(access.type, value) : value;
  writer.line(fmt::format("{}store({} + {}, row.ranks.gather({}, {}));", guard, pointerNames.at(store),
                          offset, gatherOffset(store, column), sent));
}

void BodyPrinter::storeFromReducer(const Store *store, const std::string &column, const std::string &guard) {
  const Access &access = store->access;
  const std::string type = body::spelling(access.type);
  const bool perElement = access.view.strides.back() != Dim(0) && access.divisors.back() == 1;
  const int64_t vector = perElement ? layout.vector : 1;
  const std::string offset = access.view.strides.back() == Dim(0) ? "0" : columnOffset(access, column);
  writer.line(fmt::format("{}store_vec({} + {}, row.ranks.gathered<{}, {}>({}));", guard,
                          pointerNames.at(store), offset, type, vector, gatherOffset(store, column)));
}

} // namespace fusion::row
