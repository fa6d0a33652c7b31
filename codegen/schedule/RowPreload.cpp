// Which vectors of a row are loaded ahead of the arithmetic.
#include "codegen/schedule/RowEmitter.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion::row {

/// 32-bit registers that may hold vectors loaded ahead; beyond it they would crowd out the values kept between
/// sweeps.
static constexpr int64_t mostRegisters = 48;

/// No kernel writes it.
bool Emitter::isConstant(const Node *load) const {
  Operation *producer = context.inputs[load->access.index].base.getDefiningOp();
  return producer && isa<nn::WeightOp, nn::ConstantOp>(producer);
}

/// It can be read before the kernels ahead have finished. Rows of a few lanes share what they read, tables of angles
/// and weights, in the L1, which load_settled passes by: not worth it.
bool Emitter::isEarly(const Node *load) const {
  return isConstant(load) || (layout.wholeBlock() && context.isSettled(load->access.index));
}

void Emitter::choosePreloads() {
  if (!layout.inRegisters)
    return;
  findFolds();
  // Loads of the thread's own columns, and tables of angles whose columns are the thread's own, folded.
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
    pending.insert(pending.end(), node->operands.begin(), node->operands.end());
  }
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

bool Emitter::isPairFolded(const Node *load) const {
  const auto fold = folds.find(load);
  return fold != folds.end() && fold->second.kind == ColumnMap::Kind::PairFold;
}

std::string Emitter::preloadedChunks(const Node *load) const {
  return layout.inCluster() ? chunkCount() : std::to_string(heldChunks(load));
}

void Emitter::declarePreload(const Node *load) {
  const std::string type = sourceType(load->access.type).str(), name = writer.fresh("v");
  preloaded[load] = name;
  writer.line(vectors() ? fmt::format("Vec<{}, {}> {}[{}];", type, isPairFolded(load) ? layout.vector / 2 : layout.vector, name,
                                      preloadedChunks(load))
                        : fmt::format("{} {}[{}];", type, name, preloadedChunks(load)));
}

void Emitter::fillPreload(const Node *load, bool settled) {
  const bool pairs = isPairFolded(load);
  const std::string column = pairs ? mappedColumn(folds.at(load), "(" + chunkColumn() + ")") : chunkColumn();
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int k = 0; k < {}; ++k) {{", preloadedChunks(load)));
  writer.line(fmt::format("const i64 column = {};", column));
  writer.line(fmt::format("{}[k] = {};", preloaded.at(load),
                          loadVector(load, "column", pairs ? layout.vector / 2 : layout.vector, settled)));
  writer.line("}");
}

void Emitter::preload(bool early) {
  for (const Node *node : preloads)
    if (isEarly(node) == early && !isOwners(node)) {
      declarePreload(node);
      fillPreload(node, early && !isConstant(node));
    }
  // A scale of the row or the tensor: what is loaded where it is needed is waited for.
  for (const Node &node : graph.nodes)
    if (node.kind == Node::Kind::Load && node.level == Level::Row && uses.contains(&node) &&
        isEarly(&node) == early)
      rowValue(&node);
}

/// Behind the row's own loads, which come first.
void Emitter::fetchAhead(bool early) {
  if (layout.ahead == 0 || exchange || layout.inCluster())
    return;
  SmallVector<const Node *> loads;
  for (const Node &node : graph.nodes)
    if (isFetchedAhead(graph, node) && pointerNames.contains(&node) && isEarly(&node) == early)
      loads.push_back(&node);
  if (loads.empty())
    return;
  const std::string width = writer.size(graph.width);
  writer.line("// The L2 fetches rows as wholes, a little ahead.");
  writer.line(fmt::format("if ({} == 0 && {} + {} < {}) {{", thread, row, layout.ahead, writer.size(graph.rows)));
  const auto own = std::tuple(row, leadIndices, pointerNames);
  row = local("i64", "ahead", fmt::format("{} + {}", row, layout.ahead));
  leadIndices.assign(graph.leads.size(), std::nullopt);
  for (const Node *load : loads) {
    pointerFor(load, load->access, /*isOutput=*/false);
    writer.line(fmt::format("prefetch_range({0}, {0} + {1});", pointerNames.at(load), width));
  }
  std::tie(row, leadIndices, pointerNames) = own;
  writer.line("}");
}

} // namespace fusion::row
