// Which vectors of a row are requested before the first pass.
#include "codegen/schedule/RowBody.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion::row {

/// No kernel writes it.
bool BodyPrinter::isConstant(const Node *load) const {
  return nn::isStored(context.inputs[load->access.index].base);
}

/// It can be read before the kernel just before has finished. Rows of a few lanes share what they read,
/// tables of angles and weights, in the L1, which load_early passes by: not worth it.
bool BodyPrinter::isEarly(const Node *load) const {
  if (load->chosen && !isEarly(load->chosen))
    return false;
  return isConstant(load) ||
         ((asksEarly || layout.wholeBlock()) && context.isIndependentOfPredecessor(load->access.index));
}

/// Loads of the thread's own columns, and of tables of angles whose columns are the thread's own, folded.
std::vector<const Node *> BodyPrinter::loadsOfColumns() const {
  std::set<const Node *> seen;
  std::vector<const Node *> pending, loads;
  for (const Store &store : graph.stores)
    pending.push_back(store.value);
  while (!pending.empty()) {
    const Node *node = pending.back();
    pending.pop_back();
    // The operand of a partner is reached the straight way too.
    const bool partner = node->kind == Node::Kind::Move && (node->map.kind == ColumnMap::Kind::HalfPartner ||
                                                            node->map.kind == ColumnMap::Kind::NextPartner);
    if (partner || (node->kind == Node::Kind::Move && !movesChunks(node->map)) || !seen.insert(node).second)
      continue;
    if (node->kind == Node::Kind::Load && !node->summed && node->level == Level::Element &&
        readsVectors(node->access))
      loads.push_back(node);
    if (!isReceived(node))
      pending.insert(pending.end(), node->operands.begin(), node->operands.end());
  }
  return loads;
}

void BodyPrinter::choosePreloads() {
  if (!layout.inRegisters)
    return;
  findFolds();
  const std::vector<const Node *> loads = loadsOfColumns();
  int64_t left = mostRegisters;
  for (bool early : {true, false})
    for (const Node &node : graph.nodes) { // in the order of the graph, so that the text is always the same
      if (!llvm::is_contained(loads, &node) || isEarly(&node) != early)
        continue;
      const int64_t vectorBytes = layout.vector * static_cast<int64_t>(byteSize(node.access.type)),
                    registers = heldChunks(&node) / layout.clusterBlocks * ((vectorBytes + 3) / 4);
      if (registers > left)
        continue;
      left -= registers;
      preloads.push_back(&node);
    }
}

bool BodyPrinter::isPairFolded(const Node *load) const {
  const auto fold = folds.find(load);
  return fold != folds.end() && fold->second.kind == ColumnMap::Kind::PairFold;
}

/// How many vectors of a row a thread holds of what a Load reads.
std::string BodyPrinter::heldVectors(const Node *load) const {
  return layout.inCluster() ? "Thread::chunks" : std::to_string(heldChunks(load));
}

void BodyPrinter::fillPreload(const Node *load, bool early) {
  const bool pairs = isPairFolded(load);
  const int64_t vector = pairs ? layout.vector / 2 : layout.vector, held = heldChunks(load);
  const std::string type = body::spelling(load->access.type);
  std::string &name = preloaded[load];
  name = liveMember(vectors() ? fmt::format("Vec<{}, {}>", type, vector) : type, "v", heldVectors(load));
  const std::string column = pairs ? mappedColumn(folds.at(load), "at.column") : "at.column";
  writer.line(fmt::format("{}{}[at.k] = {};",
                          held < layout.chunks ? fmt::format("if (at.k < {}) ", held) : "", name,
                          loadVector(load, pairs ? "(" + column + ")" : column, vector, early)));
}

void BodyPrinter::preload(bool early) {
  for (const Node *node : preloads)
    if (isEarly(node) == early && !isOfReducer(node))
      fillPreload(node, early);
}

/// Where rows of tables begin.
void BodyPrinter::choose(bool early) {
  for (const Node &node : graph.nodes)
    if (node.chosen && pointerNames.contains(&node) && isEarly(node.chosen) == early) {
      const std::string &pointer = pointerNames.at(&node), entry = rowValue(node.chosen);
      writer.line(fmt::format("{0} = {0} + gather_index((i64){1}, {2}) * {3};", pointer, entry,
                              writer.size(node.entries), writer.size(node.access.rowStep)));
    }
}

/// A scale of the row or the tensor: what is loaded where it is needed is waited for.
void BodyPrinter::scalars(bool early) {
  for (const Node &node : graph.nodes)
    if (node.kind == Node::Kind::Load && node.level == Level::Row && uses.contains(&node) &&
        isEarly(&node) == early)
      rowValue(&node);
  if (!early)
    rowValuesOf(0);
}

void BodyPrinter::prefetch(bool early) {
  if (layout.prefetchDistance == 0 || exchange || layout.inCluster())
    return;
  for (const Node &node : graph.nodes)
    if (isPrefetched(graph, node) && pointerNames.contains(&node) && isEarly(&node) == early)
      writer.line(
          fmt::format("prefetch_range({0}, {0} + {1});", pointerNames.at(&node), writer.size(graph.width)));
}

/// Whether the thread reads its own columns in vectors.
bool BodyPrinter::readsVectors(const Access &access) const {
  if (!layout.shifted)
    return isVectorAccess(access, layout.vector);
  return isContiguousRow(access, graph.width, layout.vector) ||
         (access.columnDims == 1 && isVectorAccess(access, layout.vector));
}

/// `early`: before the kernel just before has finished.
std::string BodyPrinter::loadVector(const Node *load, const std::string &column, int64_t vector, bool early) {
  const std::string type = body::spelling(load->access.type), &pointer = pointerNames.at(load);
  const bool byLoadEarly = early && !isConstant(load);
  if (layout.shifted) {
    const char *how = isContiguousRow(load->access, graph.width, vector) ? "edge" : "moved";
    return fmt::format("load_{}_vec<{}, {}, {}>({}, {}, {})", how, type, vector, byLoadEarly, pointer, column,
                       writer.size(graph.width));
  }
  const std::string offset = columnOffset(load->access, column), prefix = byLoadEarly ? "load_early" : "load";
  return vectors() ? fmt::format("{}_vec<{}, {}>({} + {})", prefix, type, vector, pointer, offset)
                   : fmt::format("{}({} + {})", prefix, pointer, offset);
}

} // namespace fusion::row
