// The passes over a row: what each accumulates, keeps and stores, and the totals at its end.
#include "codegen/schedule/RowBody.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion::row {

static const char *nameOf(const Node *node, const scalar::Graph &scalars) {
  switch (node->reduction) {
  case Node::Reduction::Mean: {
    const scalar::Value x = node->operands[0]->value;
    return scalars.isExactIn(x, DType::F16) || scalars.isExactIn(x, DType::BF16) ? "Mean<false>"
                                                                                 : "Mean<true>";
  }
  case Node::Reduction::Sum:
  case Node::Reduction::SumOfSquares:
    return "Sum";
  case Node::Reduction::Max:
    return "Max";
  case Node::Reduction::Min:
    return "Min";
  case Node::Reduction::Product:
    return "Product";
  }
  llvm_unreachable("all reductions handled");
}

/// The accumulators of a pass, and the arrays of what lives on after it.
void BodyPrinter::declareLive(unsigned number) {
  for (const Node *reduction : plan.reductions[number]) {
    if (plan.moments.contains(reduction))
      continue; // finish() of the pass before has them
    const std::string type =
        fmt::format("Accumulator<{}, {}>", nameOf(reduction, graph.scalars), typeName(reduction));
    if (reduction->perGroup)
      arrays[reduction] = liveMember(type, "group", heldVectors(reduction));
    else
      accumulators[reduction] = rowMember(type, "sum");
  }
  for (const Node &node : graph.nodes) {
    auto live = plan.live.find(&node);
    if (live == plan.live.end() || live->second != number || isPreloaded(&node))
      continue;
    auto vector = packed.find(&node);
    const std::string chunks = layout.inCluster() ? "Thread::chunks" : std::to_string(layout.chunks);
    arrays[&node] = vector != packed.end()
                        ? liveMember(vectorOf(vector->second.type), "keep", chunks)
                        : liveMember(typeName(&node), "keep",
                                     vectors() ? fmt::format("{} * {}", chunks, layout.vector) : chunks);
  }
}

void BodyPrinter::accumulate(const Node *reduction) {
  const Node *term = reduction->operands[0];
  if (plan.moments.contains(reduction)) {
    const std::string value = element(termOf(reduction), own);
    writer.line(fmt::format("{}{}.add({});", guard(/*ofRows=*/false), accumulators.at(reduction), value));
    return;
  }
  const bool squares = reduction->reduction == Node::Reduction::SumOfSquares;
  const std::string value = element(term, own);
  const std::string into = reduction->perGroup ? arrays.at(reduction) + "[at.k]" : accumulators.at(reduction);
  // Repeated elements change no largest or smallest value of the row, and none of a group that is repeated
  // whole.
  const bool matters = layout.shifted        ? true
                       : reduction->perGroup ? *graph.width.constant() % graph.groupSize != 0
                                             : reduction->reduction != Node::Reduction::Max &&
                                                   reduction->reduction != Node::Reduction::Min;
  writer.line(fmt::format("{}{}.{}({});", matters ? guard(/*ofRows=*/false) : "", into,
                          squares ? "add_square" : "add", value));
}

/// The row of the buffer that a placed row goes to.
std::string BodyPrinter::placedRow(const Store *store) {
  const std::string row = element(store->row, own);
  const RowPlacement &placement = *store->placement;
  if (placement.scatters)
    return fmt::format("row_from_end({}, {})", row, writer.size(placement.size));
  return placement.clears ? fmt::format("row_behind({}, {}, {})", row, writer.size(placement.past),
                                        writer.size(placement.fresh))
                          : row;
}

/// Where the row's first element goes.
std::string BodyPrinter::targetOf(const Store *store) {
  const std::string &pointer = pointerNames.at(store);
  return store->placement
             ? fmt::format("{} + {} * {}", pointer, placedRow(store), writer.size(store->access.rowStep))
             : pointer;
}

/// `if (…) ` before what only elements in the row may do, `ofRows`, only rows in the tensor, and what a store
/// asks for.
std::string BodyPrinter::guard(bool ofRows, const Store *store) {
  std::string condition;
  auto add = [&](const std::string &part) { condition += (condition.empty() ? "" : " && ") + part; };
  if (ofRows && (isGuarded() || !layout.wholeBlock()))
    add("at.writes");
  else if (isGuarded())
    add("at.inside");
  if (store && !store->condition.empty())
    add(store->condition);
  if (store && store->placement)
    add(store->placement->clears
            ? fmt::format("{} != {}", placedRow(store), element(store->row, own))
            : fmt::format("{0} >= 0 && {0} < {1}", placedRow(store), writer.size(store->placement->size)));
  if (layout.shifted)
    add("inRow");
  return condition.empty() ? "" : fmt::format("if ({}) ", condition);
}

/// Stored values pass through f32 on their way to a narrow float.
static bool isConverted(DType type) { return scalar::isNarrow(type); }

/// What goes into a vector that is converted as a whole: a value that nothing else needs is rounded there
/// only.
std::string BodyPrinter::storedElement(const Store *store) {
  const Node *node = store->value;
  if (node->kind == Node::Kind::Apply && node->level == Level::Element && uses.at(node) == 1 &&
      !scalar::losesInfinity(store->access.type) &&
      graph.scalars.isRoundedLast(node->value, store->access.type))
    return local(typeName(node), "x", applied(node, own, /*rounded=*/false));
  return element(node, own);
}

/// `pack`: the vector that collects the values of this chunk; empty if each is stored by itself.
void BodyPrinter::storeValues(const Store *store, const std::string &pack) {
  if (!pack.empty()) {
    const std::string value = storedElement(store);
    writer.line(fmt::format("{}[i] = {};", pack, value));
    return;
  }
  const std::string value = store->placement && store->placement->clears ? "0" : element(store->value, own);
  if (isGathered(store)) {
    storeGathered(store, own.column, guard(/*ofRows=*/true), value);
    return;
  }
  const std::string offset = columnOffset(store->access, own.column);
  writer.line(guard(/*ofRows=*/true, store) +
              body::storeElement(store->access.type, targetOf(store), offset, value) + ";");
}

bool BodyPrinter::writesVectors(const Store *store) const {
  return vectors() && (layout.shifted ? isContiguousRow(store->access, graph.width, layout.vector)
                                      : isVectorAccess(store->access, layout.vector));
}

void BodyPrinter::storeVector(const Store *store, std::string vector) {
  if (layout.shifted) {
    writer.line(fmt::format("{}store_edge_vec({}, at.column, {}, {});",
                            layout.wholeBlock() ? "" : "if (at.writes) ", pointerNames.at(store),
                            writer.size(graph.width), vector));
    return;
  }
  const std::string condition = guard(/*ofRows=*/true, store);
  if (isGathered(store))
    vector = fmt::format("row.ranks.gather({}, {})", gatherOffset(store, "at.column"), vector);
  const std::string offset = columnOffset(store->access, "at.column");
  writer.line(fmt::format("{}store_vec({} + {}, {});", condition, targetOf(store), offset, vector));
}

void BodyPrinter::storeGroup(const Store *store) {
  const std::string value = groupValue(store->value),
                    condition = fmt::format("{}if (at.column % {} == 0) ", guard(/*ofRows=*/true, store),
                                            graph.groupSize);
  if (isGathered(store)) {
    storeGathered(store, "at.column", condition, value);
    return;
  }
  const std::string offset = columnOffset(store->access, "at.column");
  writer.line(condition + body::storeElement(store->access.type, pointerNames.at(store), offset, value) +
              ";");
}

/// What a pass does with one vector of columns.
void BodyPrinter::pass(unsigned number) {
  positions.clear();
  groupNames.clear();
  vectorNames.clear();
  elementNames.clear();
  packedNames.clear();
  own = Position();
  own.chunk = "at.column";
  own.lane = "i";
  own.held = layout.inRegisters ? "at.k" : "";
  own.vector = layout.vector;
  own.column = layout.shifted ? "(inRow ? at.column + i : 0)" : vectors() ? "(at.column + i)" : "at.column";
  for (const Node *reduction : plan.reductions[number])
    prepare(termOf(reduction), own);
  for (const Store *store : plan.stores[number]) {
    prepare(store->value, own);
    if (store->row)
      prepare(store->row, own);
  }
  stores(number);
}

/// The loop over the elements of a vector, and the stores after it.
void BodyPrinter::stores(unsigned number) {
  std::vector<const Store *> perElement, perGroup, cleared; // cleared: vectors of zeros
  for (const Store *store : plan.stores[number])
    (store->placement && store->placement->clears && writesVectors(store) ? cleared
     : store->access.divisors.back() == 1                                 ? perElement
                                                                          : perGroup)
        .push_back(store);
  std::map<const Store *, std::string> packs;
  std::set<const Store *> whole; // vectors as they are
  for (const Store *store : perElement)
    if (isPacked(store->value, own) && packed.at(store->value).type == store->access.type &&
        writesVectors(store)) {
      packs[store] = packedVector(store->value, own);
      whole.insert(store);
    }
  if (perElement.size() > whole.size() || !plan.reductions[number].empty()) {
    for (const Store *store : perElement)
      if (!whole.contains(store) && writesVectors(store)) {
        packs[store] = writer.fresh("y");
        const DType type = store->access.type;
        writer.line(fmt::format("Vec<{}, {}> {};", isConverted(type) ? "f32" : body::spelling(type),
                                layout.vector, packs[store]));
      }
    if (vectors()) {
      writer.line("#pragma unroll");
      writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", layout.vector));
    }
    if (layout.shifted)
      writer.line(fmt::format("const bool inRow = is_inside(at.column + i, {});", writer.size(graph.width)));
    for (const Store *store : perElement)
      if (!whole.contains(store))
        storeValues(store, packs.contains(store) ? packs[store] : "");
    for (const Node *reduction : plan.reductions[number])
      accumulate(reduction);
    if (vectors())
      writer.line("}");
  }
  for (const Store *store : cleared)
    storeVector(store, fmt::format("Vec<{}, {}>{{}}", body::spelling(store->access.type), layout.vector));
  for (const Store *store : perElement)
    if (packs.contains(store)) {
      const DType type = store->access.type;
      storeVector(store, isConverted(type) && !whole.contains(store)
                             ? body::toVector(type, packs[store])
                             : packs[store]);
    }
  for (const Store *store : perGroup)
    storeGroup(store);
}

void BodyPrinter::finishReduction(const Node *reduction) {
  const bool ofMoments =
      llvm::any_of(plan.moments, [&](const auto &pair) { return pair.second == reduction; });
  if (ofMoments)
    return; // with the squares
  if (reduction->perGroup) {
    writer.line(fmt::format("thread.finish_groups<{}>({});", graph.groupSize, arrays.at(reduction)));
    return;
  }
  const bool moments = plan.moments.contains(reduction);
  const std::string name =
      rowMember(moments ? "Moments" : typeName(reduction), moments ? "moments" : "total");
  const bool isMean = reduction->reduction == Node::Reduction::Mean;
  writer.line(fmt::format("{} = thread.total<{}>({}{});", name, totals++, accumulators.at(reduction),
                          isMean ? ", (f32)" + writer.size(graph.width) : ""));
  rowNames[reduction] = moments ? name + ".squares" : name;
  if (moments)
    rowNames[plan.moments.at(reduction)] = name + ".mean";
}

/// What a pass needs of values that its row has once.
void BodyPrinter::rowValuesOf(unsigned number) {
  for (const Node *reduction : plan.reductions[number])
    rowValuesFor(termOf(reduction));
  for (const Store *store : plan.stores[number]) {
    rowValuesFor(store->value);
    if (store->row)
      rowValuesFor(store->row);
  }
  for (const Node *reduction : plan.reductions[number])
    if (plan.moments.contains(reduction)) {
      accumulators[reduction] = rowMember("RowMoments", "squares");
      writer.line(fmt::format("{} = thread.moments({});", accumulators[reduction],
                              accumulators.at(plan.moments.at(reduction))));
    }
}

void BodyPrinter::finish(unsigned number) {
  for (const Node *reduction : plan.reductions[number])
    finishReduction(reduction);
  if (++current < plan.reductions.size())
    rowValuesOf(current);
}

} // namespace fusion::row
