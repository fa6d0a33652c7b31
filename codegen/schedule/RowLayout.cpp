#include "codegen/schedule/RowLayout.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/Support/MathExtras.h"

#include <set>

namespace fusion::row {

bool isPlainReduction(const Node &node) {
  return node.type == DType::F32 && node.reduction != Node::Reduction::Product;
}

bool isVectorAccess(const Access &access, int64_t vector) {
  if (vector == 1)
    return true;
  const View &view = access.view;
  const size_t leading = view.shape.size() - access.columnDims;
  if (access.columnDims > 2 || access.divisors.back() != 1 || view.strides.back() != Dim(1) ||
      !view.offset.knownMultipleOf(vector) || !access.rowStep.knownMultipleOf(vector))
    return false;
  // A vector stays within one head.
  if (access.columnDims == 2 && (access.divisors[leading] != 1 || !view.shape.back().knownMultipleOf(vector)))
    return false;
  for (size_t i = 0; i < leading + access.columnDims - 1; ++i)
    if (view.shape[i] != Dim(1) && !view.strides[i].knownMultipleOf(vector))
      return false;
  return true;
}

bool isContiguousRow(const Access &access, const Dim &width, int64_t vector) {
  const View &view = access.view;
  if (access.columnDims != 1 || view.strides.back() != Dim(1) || access.rowStep != Dim(0) ||
      !view.offset.knownMultipleOf(vector) ||
      llvm::any_of(access.divisors, [](int64_t divisor) { return divisor != 1; }))
    return false;
  Dim stride = width;
  for (size_t dim = view.shape.size() - 1; dim-- > 0; stride = stride * view.shape[dim])
    if (view.shape[dim] != Dim(1) && view.strides[dim] != stride)
      return false;
  return true;
}

/// The mean about which `squares` are squares, if they are; see Builder::lowerLayerNorm.
static const Node *meanOf(const scalar::Graph &scalars, const Node *squares) {
  if (squares->reduction != Node::Reduction::SumOfSquares || squares->perGroup)
    return nullptr;
  const Node *centred = squares->operands[0];
  if (centred->kind != Node::Kind::Apply || centred->operands.size() != 2)
    return nullptr;
  const Node *x = centred->operands[0], *mean = centred->operands[1];
  const scalar::Node &difference = scalars[centred->value];
  const bool isAbout = difference.kind == scalar::Kind::Sub && difference.operands[0] == x->value &&
                       difference.operands[1] == mean->value && mean->kind == Node::Kind::Reduce &&
                       mean->reduction == Node::Reduction::Mean && mean->operands[0] == x;
  return isAbout ? mean : nullptr;
}

/// In registers, a thread has its elements at hand to take their squares about their own mean first. Where a
/// pass does more than that, it needs the row's mean before.
static void pairMoments(const scalar::Graph &scalars, PassPlan &plan) {
  for (size_t pass = 1; pass < plan.reductions.size(); ++pass) {
    std::map<const Node *, const Node *> pairs;
    for (const Node *reduction : plan.reductions[pass])
      if (const Node *mean = meanOf(scalars, reduction);
          mean && llvm::is_contained(plan.reductions[pass - 1], mean))
        pairs[reduction] = mean;
    if (pairs.size() == plan.reductions[pass].size() && plan.stores[pass].empty())
      plan.moments.insert(pairs.begin(), pairs.end());
  }
}

namespace {
/// Which values a pass computes, found by walking back from what it accumulates and stores.
class Planner {
public:
  Planner(PassPlan &plan, bool inRegisters) : plan(plan), inRegisters(inRegisters) {}

  void visit(const Node *node, bool moved, unsigned pass) {
    if (node->level != Level::Element)
      return;
    if (!moved && inRegisters) {
      auto [first, isNew] = firstPass.try_emplace(node, pass);
      if (!isNew) {
        if (first->second < pass)
          plan.live[node] = first->second;
        return;
      }
    }
    const bool away = moved || node->kind == Node::Kind::Move;
    for (const Node *operand : node->operands)
      visit(operand, away, pass);
  }

private:
  PassPlan &plan;
  bool inRegisters;
  std::map<const Node *, unsigned> firstPass;
};
} // namespace

PassPlan planPasses(const Graph &graph, bool inRegisters, bool inCluster) {
  PassPlan plan;
  auto at = [](auto &passes, unsigned index) -> auto & {
    if (passes.size() <= index)
      passes.resize(index + 1);
    return passes[index];
  };
  std::set<const Node *> used;
  std::vector<const Node *> pending;
  for (const Store &store : graph.stores) {
    pending.push_back(store.value);
    if (store.row)
      pending.push_back(store.row);
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
  const size_t passes = std::max(plan.reductions.size(), plan.stores.size());
  plan.reductions.resize(passes);
  plan.stores.resize(passes);
  // In the order in which they were built, not in that of their addresses.
  for (auto &pass : plan.reductions) {
    std::vector<const Node *> ordered;
    for (const Node &node : graph.nodes)
      if (llvm::is_contained(pass, &node))
        ordered.push_back(&node);
    pass = std::move(ordered);
  }
  if (inRegisters && !inCluster)
    pairMoments(graph.scalars, plan);
  Planner planner(plan, inRegisters);
  for (unsigned pass = 0; pass < passes; ++pass) {
    for (const Node *reduction : plan.reductions[pass]) {
      const auto pair = plan.moments.find(reduction);
      planner.visit((pair == plan.moments.end() ? reduction : pair->second)->operands[0], false, pass);
    }
    for (const Store *store : plan.stores[pass])
      planner.visit(store->value, false, pass);
  }
  return plan;
}

static int64_t powerOfTwoAbove(int64_t value) {
  return static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

/// Bytes of the narrowest element that is read, or else written, in every column.
static int64_t narrowestOf(const Graph &graph) {
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
  return static_cast<int64_t>(narrowest);
}

/// 16 bytes of the narrowest element, as far as the width allows.
static int64_t chooseVector(const Graph &graph, int64_t width) {
  int64_t vector = std::min<int64_t>(8, 16 / narrowestOf(graph));
  if (graph.groupSize > 0)
    vector = std::max(vector, graph.groupSize / 32);
  while (width % vector != 0 || graph.headSize % vector != 0 ||
         (graph.groupSize > 0 && vector > graph.groupSize))
    vector /= 2;
  return vector;
}

/// Whether vectors that the width does not allow are worth their two ends: accesses of fewer than 8 bytes
/// otherwise, in rows that are not short.
static bool wantsShift(const Graph &graph, int64_t width, int64_t vector) {
  if (width < 256 || width > INT32_MAX - 64 || vector * narrowestOf(graph) >= 8 || graph.groupSize > 0 ||
      graph.headSize > 0 || llvm::any_of(graph.nodes, [](const Node &node) {
        return node.kind == Node::Kind::Move || node.summed;
      }))
    return false;
  auto contiguous = [&](const Access &access) { return isContiguousRow(access, width, 8); };
  return llvm::any_of(graph.nodes, [&](const Node &node) {
    return node.kind == Node::Kind::Load && node.level == Level::Element && contiguous(node.access);
  });
}

static bool isHalfPartner(const Node &node) {
  return node.kind == Node::Kind::Move && node.map.kind == ColumnMap::Kind::HalfPartner;
}
static bool hasPairs(const Graph &graph) { return llvm::any_of(graph.nodes, isHalfPartner); }
/// Whether a thread then holds both elements of each pair that a rotary embedding turns.
static bool holdsPairs(const Graph &graph, int64_t vector, int64_t lanes) {
  return llvm::all_of(graph.nodes, [&](const Node &node) {
    return !isHalfPartner(node) || node.map.half % (lanes * vector) == 0;
  });
}
/// So few lanes that a thread holds both elements of each pair that a rotary embedding turns, if four or more
/// do.
static int64_t lanesOfPairs(const Graph &graph, int64_t vector, int64_t lanes) {
  int64_t fewer = lanes;
  while (fewer > 1 && !holdsPairs(graph, vector, fewer))
    fewer /= 2;
  return fewer >= std::min<int64_t>(lanes, 4) ? fewer : lanes;
}

// Measured on an H200, with add+norm: a row or a few end sooner if fewer warps wait for each other, thousands
// of rows if more warps wait for memory. In between the blocks of the former and the latter would leave parts
// of the last wave idle.
static constexpr int64_t fewRows = 16, manyRows = 4096;
std::vector<SizeRange> rowRanges(const Graph &graph, const Layout &layout) {
  if (graph.batchInvariant || graph.rows.isStatic() || !layout.wholeBlock() || !layout.inRegisters)
    return {};
  return {
      {graph.rows, 1, fewRows}, {graph.rows, fewRows + 1, manyRows - 1}, {graph.rows, manyRows, INT64_MAX}};
}

/// The fewest and the most rows that a layout is for, where that is known; else what is chosen for.
static std::pair<int64_t, int64_t> rowsOf(const Graph &graph, const SizeRange *range) {
  if (graph.batchInvariant)
    return {fewRows + 1, fewRows + 1};
  if (const std::optional<int64_t> rows = graph.rows.constant())
    return {*rows, *rows};
  return range ? std::pair(range->least, range->most) : std::pair(fewRows + 1, fewRows + 1);
}

/// Reductions that follow each other.
static int64_t stagesOf(const PassPlan &plan) {
  return llvm::count_if(plan.reductions, [](const auto &pass) { return !pass.empty(); }) -
         static_cast<int64_t>(!plan.moments.empty());
}

/// Elements that a thread takes of a row that has the whole block.
static int64_t elementsOfThread(const Graph &graph, const Layout &layout, int64_t width,
                                const SizeRange *range) {
  constexpr int64_t usual = 16;
  const auto [least, most] = rowsOf(graph, range);
  const PassPlan plan = planPasses(graph, true);
  // A second reduction over more warps costs what the loads gain.
  if (least >= manyRows && !layout.shifted)
    return stagesOf(plan) > 1 ? usual : usual / 2;
  // Rows that fill a multiprocessor's threads without a rest leave the fewest of them idle. Those of a sum
  // over ranks are chosen by the exchange.
  constexpr int64_t threadsOfMultiprocessor = 2048;
  const int64_t threads = width / (usual / 2);
  if (stagesOf(plan) <= 1 && most > fewRows && !layout.shifted && threads >= 256 && threads <= 1024 &&
      threadsOfMultiprocessor % threads == 0 &&
      llvm::none_of(graph.nodes, [](const Node &node) { return node.summed; }))
    return usual / 2;
  // As far as all that is read is requested ahead; see BodyPrinter::choosePreloads().
  const int64_t loads = llvm::count_if(graph.nodes, [](const Node &node) {
    return node.kind == Node::Kind::Load && node.level == Level::Element;
  });
  return most <= fewRows && width / usual >= 512 && loads <= 3 ? 2 * usual : usual;
}

bool isPrefetched(const Graph &graph, const Node &load) {
  const Access &access = load.access;
  const View &view = access.view;
  if (load.kind != Node::Kind::Load || load.summed || load.chosen || load.level != Level::Element ||
      access.columnDims != 1 || view.strides.back() != Dim(1) ||
      llvm::any_of(access.divisors, [](int64_t divisor) { return divisor != 1; }))
    return false;
  return llvm::all_of(llvm::seq<size_t>(0, graph.outerDims[access.outer].size()), [&](size_t dim) {
    return view.strides[dim] != Dim(0) || graph.outerDims[access.outer][dim] == Dim(1);
  });
}

int64_t bytesFetched(const Graph &graph) {
  const std::optional<int64_t> width = graph.width.constant();
  int64_t read = 0, written = 0;
  for (const Node &node : graph.nodes)
    if (isPrefetched(graph, node))
      read += static_cast<int64_t>(byteSize(node.access.type));
  for (const Store &store : graph.stores)
    if (store.access.view.strides.back() != Dim(0) && store.access.divisors.back() == 1)
      written += static_cast<int64_t>(byteSize(store.access.type));
  constexpr int64_t worthAFetch = 128;
  return width && written >= read && read * *width >= worthAFetch ? read * *width : 0;
}

std::variant<Layout, std::string> chooseLayout(const Graph &graph, const SizeRange *range,
                                               uint32_t blockThreads) {
  const bool plain = llvm::all_of(graph.nodes, [](const Node &node) {
    return node.kind != Node::Kind::Reduce || isPlainReduction(node);
  });
  Layout layout;
  const std::optional<int64_t> width = graph.width.constant(), rows = graph.rows.constant();
  if (!width || *width == 0) {
    // A few long rows want a block each.
    if (plain && rows && *rows <= 32 && !graph.batchInvariant)
      layout.blockThreads = layout.threadsPerRow = blockThreads ? blockThreads : 256;
    else if (blockThreads)
      layout.blockThreads = blockThreads;
    return layout;
  }
  layout.vector = chooseVector(graph, *width);
  // How a row lies to aligned memory depends on its number.
  layout.shifted = !graph.batchInvariant && wantsShift(graph, *width, layout.vector);
  if (layout.shifted)
    layout.vector = std::min<int64_t>(8, 16 / narrowestOf(graph));
  int64_t vectors =
      layout.shifted ? (*width + 2 * layout.vector - 2) / layout.vector : *width / layout.vector;
  const int64_t liveValues = static_cast<int64_t>(planPasses(graph, true).live.size());
  if (*width <= 512 || !plain) {
    auto lanesFor = [&](int64_t vector) {
      const int64_t perThread = std::max<int64_t>(1, 16 / vector), count = vectors * layout.vector / vector;
      return std::min<int64_t>(32, powerOfTwoAbove(llvm::divideCeil(count, perThread)));
    };
    int64_t lanes = lanesFor(layout.vector);
    if (graph.groupSize > 0) {
      lanes = std::min<int64_t>(32, std::max(lanes, graph.groupSize / layout.vector));
    } else if (hasPairs(graph)) {
      // Half a vector rather than partners that are read again and lanes that idle: heads of 96.
      const int64_t half = layout.vector / 2;
      if (!holdsPairs(graph, layout.vector, lanesOfPairs(graph, layout.vector, lanes)) &&
          half * narrowestOf(graph) >= 8 &&
          holdsPairs(graph, half, lanesOfPairs(graph, half, lanesFor(half)))) {
        lanes = lanesFor(half);
        vectors *= layout.vector / half;
        layout.vector = half;
      }
      lanes = lanesOfPairs(graph, layout.vector, lanes);
    }
    layout.threadsPerRow = static_cast<uint32_t>(lanes);
    if (blockThreads)
      layout.blockThreads = blockThreads;
  } else if (blockThreads) {
    layout.blockThreads = layout.threadsPerRow = blockThreads;
  } else {
    const int64_t wanted = static_cast<int64_t>(llvm::alignTo(
        static_cast<uint64_t>(llvm::divideCeil(*width, elementsOfThread(graph, layout, *width, range))), 32));
    layout.threadsPerRow = static_cast<uint32_t>(std::clamp<int64_t>(wanted, 64, 1024));
    layout.blockThreads = layout.threadsPerRow;
  }
  layout.chunks = static_cast<int64_t>(llvm::divideCeil(vectors, layout.threadsPerRow));
  // 1024 threads have 64 registers each, fewer threads have more.
  const int64_t held = layout.chunks * layout.vector * std::max<int64_t>(liveValues, 1);
  layout.inRegisters = held <= (layout.blockThreads > 512 ? 32 : 64);
  if (graph.groupSize > 0 && !layout.inRegisters)
    return std::string("groups in a row of ") + std::to_string(*width) +
           " elements, which do not fit in registers";
  if (graph.groupSize > 0 && graph.groupSize > 32 * layout.vector)
    return "groups of " + std::to_string(graph.groupSize) + " elements in a row of " +
           std::to_string(*width) + ", which no warp holds";
  if (!layout.inRegisters && layout.wholeBlock() && blockThreads == 0)
    layout.blockThreads = layout.threadsPerRow = 512;
  if (const int64_t bytes = bytesFetched(graph);
      bytes > 0 && layout.inRegisters && layout.wholeBlock() && rowsOf(graph, range).first >= manyRows)
    layout.prefetchDistance = std::max<int64_t>(1, prefetchBytes / bytes);
  return layout;
}

Layout layoutWithin(const Graph &graph, int64_t mostRows, uint32_t blockThreads, int64_t mostHeld) {
  Layout layout;
  layout.blockThreads = blockThreads;
  const int64_t width = graph.width.value();
  const bool plain = llvm::all_of(graph.nodes, [](const Node &node) {
    return node.kind != Node::Kind::Reduce || isPlainReduction(node);
  });
  // A few rows one after the other, for the whole block, which reduces with barriers; else a row for each
  // warp.
  layout.threadsPerRow = plain && mostRows <= 4 ? blockThreads : 32;
  layout.vector = chooseVector(graph, width);
  layout.chunks = static_cast<int64_t>(
      llvm::divideCeil(width, layout.vector * static_cast<int64_t>(layout.threadsPerRow)));
  const int64_t liveValues = static_cast<int64_t>(planPasses(graph, true).live.size());
  layout.inRegisters = layout.chunks * layout.vector * std::max<int64_t>(liveValues, 1) <= mostHeld;
  return layout;
}

} // namespace fusion::row
