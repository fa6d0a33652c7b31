#include "codegen/schedule/RowLayout.h"

#include "llvm/Support/MathExtras.h"

#include <set>

namespace fusion::row {

bool isPlainReduction(const Node &node) {
  return node.type == "f32" && node.reduction != Node::Reduction::Product;
}

bool isVectorAccess(const Access &access, int64_t vector) {
  if (vector == 1)
    return true;
  const View &view = access.view;
  const size_t leading = view.shape.size() - access.columnDims;
  if (access.columnDims > 2 || access.divisors.back() != 1 || view.strides.back() != Dim(1) ||
      !view.offset.knownMultipleOf(vector))
    return false;
  // A vector stays within one head.
  if (access.columnDims == 2 && (access.divisors[leading] != 1 || !view.shape.back().knownMultipleOf(vector)))
    return false;
  for (size_t i = 0; i < leading + access.columnDims - 1; ++i)
    if (view.shape[i] != Dim(1) && !view.strides[i].knownMultipleOf(vector))
      return false;
  return true;
}

namespace {
/// Which values a sweep computes, found by walking back from what it accumulates and stores.
class Planner {
public:
  Planner(SweepPlan &plan, bool inRegisters) : plan(plan), inRegisters(inRegisters) {}

  void visit(const Node *node, bool moved, unsigned sweep) {
    if (node->level != Level::Element)
      return;
    if (!moved && inRegisters) {
      auto [first, isNew] = firstSweep.try_emplace(node, sweep);
      if (!isNew) {
        if (first->second < sweep)
          plan.kept[node] = first->second;
        return;
      }
    }
    const bool away = moved || node->kind == Node::Kind::Move;
    for (const Node *operand : node->operands)
      visit(operand, away, sweep);
  }

private:
  SweepPlan &plan;
  bool inRegisters;
  std::map<const Node *, unsigned> firstSweep;
};
} // namespace

SweepPlan planSweeps(const Graph &graph, bool inRegisters) {
  SweepPlan plan;
  auto at = [](auto &sweeps, unsigned index) -> auto & {
    if (sweeps.size() <= index)
      sweeps.resize(index + 1);
    return sweeps[index];
  };
  std::set<const Node *> used;
  std::vector<const Node *> pending;
  for (const Store &store : graph.stores) {
    pending.push_back(store.value);
    const bool perRow = store.access.view.strides.back() == Dim(0);
    if (perRow)
      plan.rowStores.push_back(&store);
    else
      at(plan.stores, store.value->phase).push_back(&store);
  }
  while (!pending.empty()) {
    const Node *node = pending.back();
    pending.pop_back();
    if (!used.insert(node).second)
      continue;
    pending.insert(pending.end(), node->operands.begin(), node->operands.end());
    if (node->kind == Node::Kind::Reduce)
      at(plan.reductions, node->operands[0]->phase).push_back(node);
  }
  const size_t sweeps = std::max(plan.reductions.size(), plan.stores.size());
  plan.reductions.resize(sweeps);
  plan.stores.resize(sweeps);
  // In the order in which they were built, not in that of their addresses.
  for (auto &sweep : plan.reductions) {
    std::vector<const Node *> ordered;
    for (const Node &node : graph.nodes)
      if (llvm::is_contained(sweep, &node))
        ordered.push_back(&node);
    sweep = std::move(ordered);
  }
  Planner planner(plan, inRegisters);
  for (unsigned sweep = 0; sweep < sweeps; ++sweep) {
    for (const Node *reduction : plan.reductions[sweep])
      planner.visit(reduction->operands[0], false, sweep);
    for (const Store *store : plan.stores[sweep])
      planner.visit(store->value, false, sweep);
  }
  return plan;
}

static int64_t powerOfTwoAbove(int64_t value) {
  return static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

/// 16 bytes of the narrowest element that is read or written in every column, as far as the width allows.
static int64_t chooseVector(const Graph &graph, int64_t width) {
  size_t narrowest = 8;
  auto see = [&](const Access &access) {
    if (access.view.strides.back() != Dim(0))
      narrowest = std::min(narrowest, byteSize(access.type));
  };
  for (const Node &node : graph.nodes)
    if (node.kind == Node::Kind::Load && node.level == Level::Element)
      see(node.access);
  if (narrowest == 8)
    for (const Store &store : graph.stores)
      see(store.access);
  int64_t vector = std::min<int64_t>(8, 16 / static_cast<int64_t>(narrowest));
  if (graph.groupSize > 0)
    vector = std::max(vector, graph.groupSize / 32);
  while (width % vector != 0 || graph.headSize % vector != 0 || (graph.groupSize > 0 && vector > graph.groupSize))
    vector /= 2;
  return vector;
}

/// So few lanes that a thread holds both elements of each pair that a rotary embedding turns, if four or more do.
static int64_t lanesOfPairs(const Graph &graph, int64_t vector, int64_t lanes) {
  int64_t fewer = lanes;
  for (const Node &node : graph.nodes)
    if (node.kind == Node::Kind::Move && node.map.kind == ColumnMap::Kind::HalfPartner)
      while (fewer > 1 && node.map.half % (fewer * vector) != 0)
        fewer /= 2;
  return fewer >= std::min<int64_t>(lanes, 4) ? fewer : lanes;
}

std::variant<Layout, std::string> chooseLayout(const Graph &graph, uint32_t blockThreads) {
  const bool plain = llvm::all_of(graph.nodes, [](const Node &node) {
    return node.kind != Node::Kind::Reduce || isPlainReduction(node);
  });
  Layout layout;
  const std::optional<int64_t> width = graph.width.constant(), rows = graph.rows.constant();
  if (!width || *width == 0) {
    // A few long rows want a block each.
    if (plain && rows && *rows <= 32)
      layout.blockThreads = layout.threadsPerRow = blockThreads ? blockThreads : 256;
    else if (blockThreads)
      layout.blockThreads = blockThreads;
    return layout;
  }
  layout.vector = chooseVector(graph, *width);
  const int64_t vectors = *width / layout.vector;
  const int64_t keptValues = static_cast<int64_t>(planSweeps(graph, true).kept.size());
  if (*width <= 512 || !plain) {
    const int64_t perThread = std::max<int64_t>(1, 16 / layout.vector);
    int64_t lanes = std::min<int64_t>(32, powerOfTwoAbove(llvm::divideCeil(vectors, perThread)));
    if (graph.groupSize > 0)
      lanes = std::min<int64_t>(32, std::max(lanes, graph.groupSize / layout.vector));
    else
      lanes = lanesOfPairs(graph, layout.vector, lanes);
    layout.threadsPerRow = static_cast<uint32_t>(lanes);
    if (blockThreads)
      layout.blockThreads = blockThreads;
  } else if (blockThreads) {
    layout.blockThreads = layout.threadsPerRow = blockThreads;
  } else {
    const int64_t wanted =
        static_cast<int64_t>(llvm::alignTo(static_cast<uint64_t>(llvm::divideCeil(*width, 16)), 32));
    layout.threadsPerRow = static_cast<uint32_t>(std::clamp<int64_t>(wanted, 64, 1024));
    layout.blockThreads = layout.threadsPerRow;
  }
  layout.chunks = static_cast<int64_t>(llvm::divideCeil(vectors, layout.threadsPerRow));
  // 1024 threads have 64 registers each, fewer threads have more.
  const int64_t held = layout.chunks * layout.vector * std::max<int64_t>(keptValues, 1);
  layout.inRegisters = held <= (layout.blockThreads > 512 ? 32 : 64);
  if (graph.groupSize > 0 && !layout.inRegisters)
    return std::string("groups in a row of ") + std::to_string(*width) +
           " elements, which do not fit in registers";
  if (graph.groupSize > 0 && graph.groupSize > 32 * layout.vector)
    return "groups of " + std::to_string(graph.groupSize) + " elements in a row of " +
           std::to_string(*width) + ", which no warp holds";
  if (!layout.inRegisters && layout.wholeBlock() && blockThreads == 0)
    layout.blockThreads = layout.threadsPerRow = 512;
  return layout;
}

Layout layoutWithin(const Graph &graph, uint32_t blockThreads) {
  Layout layout;
  layout.blockThreads = blockThreads;
  const int64_t width = graph.width.value();
  const bool plain = llvm::all_of(graph.nodes, [](const Node &node) {
    return node.kind != Node::Kind::Reduce || isPlainReduction(node);
  });
  // A row or two for the whole block, which reduces with barriers; else a row for each warp.
  layout.threadsPerRow = plain && graph.rows.value() <= 2 ? blockThreads : 32;
  layout.vector = chooseVector(graph, width);
  layout.chunks = static_cast<int64_t>(
      llvm::divideCeil(width, layout.vector * static_cast<int64_t>(layout.threadsPerRow)));
  const int64_t keptValues = static_cast<int64_t>(planSweeps(graph, true).kept.size());
  layout.inRegisters = layout.chunks * layout.vector * std::max<int64_t>(keptValues, 1) <= 32;
  return layout;
}

} // namespace fusion::row
