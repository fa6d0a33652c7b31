// The loops of a row kernel.
#include "codegen/schedule/RowEmitter.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion::row {

static std::string identity(const Node &reduction) {
  const bool floating = reduction.type == "f32" || reduction.type == "f64";
  switch (reduction.reduction) {
  case Node::Reduction::Sum:
    return floating ? "0.f" : "0";
  case Node::Reduction::Product:
    return floating ? "1.f" : "1";
  case Node::Reduction::Max:
    return floating ? "-inf_f32()" : fmt::format("int_range<{}>::least", reduction.type);
  case Node::Reduction::Min:
    return floating ? "inf_f32()" : fmt::format("int_range<{}>::most", reduction.type);
  }
  llvm_unreachable("all reductions handled");
}

static std::string combine(const Node &reduction, const std::string &a, const std::string &b) {
  const bool floating = reduction.type == "f32" || reduction.type == "f64";
  const bool adds = reduction.reduction == Node::Reduction::Sum;
  switch (reduction.reduction) {
  case Node::Reduction::Sum:
  case Node::Reduction::Product:
    if (floating)
      return fmt::format("{} {} {}", a, adds ? '+' : '*', b);
    // Unsigned arithmetic wraps; signed overflow would be undefined.
    return fmt::format("({})((u64){} {} (u64){})", reduction.type, a, adds ? '+' : '*', b);
  case Node::Reduction::Max:
    return floating ? fmt::format("max_nan({}, {})", a, b) : fmt::format("{0} > {1} ? {0} : {1}", a, b);
  case Node::Reduction::Min:
    return floating ? fmt::format("min_nan({}, {})", a, b) : fmt::format("{0} < {1} ? {0} : {1}", a, b);
  }
  llvm_unreachable("all reductions handled");
}

void Emitter::declare(unsigned number) {
  for (const Node *reduction : plan.reductions[number]) {
    if (!reduction->perGroup) {
      accumulators[reduction] = writer.fresh("sum");
      writer.line(fmt::format("{} {} = {};", reduction->type, accumulators[reduction], identity(*reduction)));
      continue;
    }
    arrays[reduction] = writer.fresh("group");
    writer.line(fmt::format("{} {}[{}];", reduction->type, arrays[reduction], chunkCount()));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int k = 0; k < {}; ++k)", chunkCount()));
    writer.line(fmt::format("  {}[k] = {};", arrays[reduction], identity(*reduction)));
  }
  for (const Node &node : graph.nodes)
    if (auto kept = plan.kept.find(&node);
        kept != plan.kept.end() && kept->second == number && !isPreloaded(&node)) {
      arrays[&node] = writer.fresh("keep");
      if (auto vector = packed.find(&node); vector != packed.end()) {
        writer.line(fmt::format("Vec<{}, {}> {}[{}];", sourceType(vector->second.type).str(), layout.vector, arrays[&node],
                                layout.chunks));
        continue;
      }
      const std::string held = layout.inCluster() ? fmt::format("chunks * {}", layout.vector)
                                                  : std::to_string(layout.chunks * layout.vector);
      writer.line(fmt::format("{} {}[{}];", node.type, arrays[&node], held));
    }
}

void Emitter::accumulate(const Node *reduction) {
  if (auto mean = ownMeans.find(reduction); mean != ownMeans.end()) {
    const std::string apart =
        local("f32", "apart", element(plan.moments.at(reduction)->operands[0], own) + " - " + mean->second);
    const std::string &into = accumulators.at(reduction);
    writer.line(fmt::format("{}{} = fma_({}, {}, {});", guard(/*ofRows=*/false), into, apart, apart, into));
    return;
  }
  const Node *term = reduction->operands[0];
  // A square of its own, not one of the graph's, is not rounded before it is added.
  const bool squares = term->text == "$0 * $0" && reduction->type == "f32" && uses.at(term) == 1 &&
                       reduction->reduction == Node::Reduction::Sum && !reduction->perGroup;
  const std::string value = element(squares ? term->operands[0] : term, own);
  const std::string into = reduction->perGroup ? arrays.at(reduction) + "[k]" : accumulators.at(reduction);
  // Repeated elements change no largest or smallest value of the row, and none of a group that is repeated whole.
  const bool matters = layout.shifted        ? true
                       : reduction->perGroup ? *graph.width.constant() % graph.groupSize != 0
                                           : reduction->reduction == Node::Reduction::Sum ||
                                                 reduction->reduction == Node::Reduction::Product;
  writer.line(fmt::format("{}{} = {};", matters ? guard(/*ofRows=*/false) : "", into, squares ? fmt::format("fma_({0}, {0}, {1})", value, into) : combine(*reduction, into, value)));
}

std::string Emitter::chunkColumn() const {
  const std::string stride = layout.inCluster() ? "stride" : std::to_string(layout.stride());
  const std::string column = fmt::format("k * {} + {}{}", stride, threadStart(), shift.empty() ? "" : " - " + shift);
  if (!isGuarded())
    return column;
  return layout.chunks == 1 ? last : fmt::format("k < {} ? {} : {}", layout.chunks - 1, column, last);
}

/// `if (…) ` before what only elements in the row may do, `ofRows`, only rows in the tensor, and what a store asks for.
std::string Emitter::guard(bool ofRows, const Store *store) const {
  std::string condition = ofRows ? active : "";
  if (store && !store->condition.empty())
    condition += (condition.empty() ? "" : " && ") + store->condition;
  if (layout.shifted)
    condition += condition.empty() ? "inRow" : " && inRow";
  if (isGuarded()) {
    const bool both = !condition.empty();
    condition += both ? " && " : "";
    condition += layout.chunks == 1 ? inside
                 : both             ? fmt::format("(k < {} || {})", layout.chunks - 1, inside)
                                    : fmt::format("k < {} || {}", layout.chunks - 1, inside);
  }
  return condition.empty() ? "" : fmt::format("if ({}) ", condition);
}

/// The mean about which the thread takes squares: of its own elements where all threads have as many, else of those that the
/// row's threads in its warp have.
void Emitter::beginMoments(const Node *squares) {
  const uint32_t lanes = std::min(layout.threadsPerRow, 32u);
  const Node *sum = plan.moments.at(squares);
  std::string &count = ownCounts[squares], &mean = ownMeans[squares];
  const int64_t own = layout.chunks * layout.vector;
  if (evenMoments()) {
    count = std::to_string(own);
    mean = local("f32", "own", fmt::format("{} * {}", accumulators.at(sum), literal(DType::F32, 1.0 / static_cast<double>(own))));
    return;
  }
  const std::string total = local("f32", "total", fmt::format("lanes_sum<{}>({})", lanes, accumulators.at(sum)));
  accumulators[sum] = total;
  std::string mine = fmt::format("{} ? {}.f : {}.f", inside, own, own - layout.vector);
  if (layout.shifted) {
    mine = writer.fresh("mine");
    writer.line(fmt::format("f32 {} = 0.f;", mine));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int k = 0; k < {}; ++k)", layout.chunks));
    writer.line(fmt::format("  {0} = {0} + (f32)elements_inside<{1}>({2}, {3});", mine, layout.vector, chunkColumn(),
                            writer.size(graph.width)));
  }
  count = local("f32", "count", fmt::format("lanes_sum<{}>({})", lanes, mine));
  mean = local("f32", "own", fmt::format("{0} > 0.f ? {1} / {0} : 0.f", count, total));
}

void Emitter::finishMoments(const Node *squares) {
  const Node *sum = plan.moments.at(squares);
  const int64_t lanes = std::min(layout.threadsPerRow, 32u);
  const std::string &count = ownCounts.at(squares), &mine = accumulators.at(squares);
  std::string name = writer.fresh("moments");
  writer.line(fmt::format("const Moments {} = {};", name,
                          evenMoments()
                              ? fmt::format("lanes_moments<{}, {}>({}, {})", lanes, count, accumulators.at(sum), mine)
                              : fmt::format("{{{}, lanes_sum<{}>({})}}", accumulators.at(sum), lanes, mine)));
  if (layout.wholeBlock()) {
    const int64_t held = lanes * layout.chunks * layout.vector;
    const std::string warp = name, number = evenMoments() ? literal(DType::F32, static_cast<double>(held)) : count;
    name = writer.fresh("moments");
    writer.line(fmt::format("const Moments {} = block_moments<{}, {}, {}>({}, {}, {});", name, layout.threadsPerRow,
                            blockReductions++, evenMoments(), number, warp,
                            literal(DType::F32, 1.0 / static_cast<double>(*graph.width.constant()))));
  }
  rowNames[sum] = name + ".sum";
  rowNames[squares] = name + ".squares";
}

void Emitter::finishReduction(const Node *reduction) {
  static const char *const names[] = {"sum", "max", "min"};
  if (llvm::any_of(plan.moments, [&](const auto &pair) { return pair.second == reduction; }))
    return; // with the squares
  if (plan.moments.contains(reduction))
    return finishMoments(reduction);
  if (reduction->perGroup) {
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int k = 0; k < {}; ++k)", chunkCount()));
    writer.line(fmt::format("  {0}[k] = lanes_{1}<{2}>({0}[k]);", arrays.at(reduction),
                            names[static_cast<int>(reduction->reduction)], graph.groupSize / layout.vector));
    return;
  }
  const std::string mine = accumulators.at(reduction);
  if (isPlainReduction(*reduction)) {
    rowNames[reduction] =
        local("f32", "total",
              layout.inCluster()
                  ? fmt::format("cluster_{}<{}, {}, {}>({})", names[static_cast<int>(reduction->reduction)],
                                layout.threadsPerRow, blockReductions++, layout.clusterBlocks, mine)
              : layout.wholeBlock()
                  ? fmt::format("block_{}<{}, {}>({})", names[static_cast<int>(reduction->reduction)],
                                layout.threadsPerRow, blockReductions++, mine)
                  : fmt::format("lanes_{}<{}>({})", names[static_cast<int>(reduction->reduction)],
                                layout.threadsPerRow, mine));
    return;
  }
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int mask = {}; mask > 0; mask /= 2) {{", layout.threadsPerRow / 2));
  writer.line(fmt::format("const {} other = shuffle_xor({}, mask);", reduction->type, mine));
  writer.line(fmt::format("{} = {};", mine, combine(*reduction, mine, "other")));
  writer.line("}");
  rowNames[reduction] = mine;
}

/// Stored values pass through f32 on their way to a narrow float.
static bool isConverted(DType type) { return registerType(type) != sourceType(type); }

/// What goes into a vector that is converted as a whole: a value that nothing else needs is rounded there only.
std::string Emitter::storedElement(const Store *store) {
  const Node *node = store->value;
  if (isConverted(store->access.type) && node->kind == Node::Kind::Apply && node->level == Level::Element &&
      uses.at(node) == 1)
    if (auto text = unrounded(store->access.type, applied(node, own)))
      return local(node->type, "x", *text);
  return element(node, own);
}

/// `pack`: the vector that collects the values of this chunk; empty if each is stored by itself.
void Emitter::storeValues(const Store *store, const std::string &pack) {
  if (!pack.empty()) {
    const std::string value = storedElement(store);
    writer.line(fmt::format("{}[i] = {};", pack, value));
    return;
  }
  const std::string value = element(store->value, own);
  if (isReply(store)) {
    storeReply(store, own.column, guard(/*ofRows=*/true), value);
    return;
  }
  writer.line(guard(/*ofRows=*/true, store) + storeElement(store->access.type, pointerNames.at(store),
                                                    columnOffset(store->access, own.column), value) + ";");
}

void Emitter::chunkBody(unsigned number) {
  positions.clear();
  groupNames.clear();
  vectorNames.clear();
  elementNames.clear();
  packedNames.clear();
  for (const Node *reduction : plan.reductions[number])
    prepare(termOf(reduction), own);
  for (const Store *store : plan.stores[number])
    prepare(store->value, own);
  std::vector<const Store *> perElement, perGroup;
  for (const Store *store : plan.stores[number])
    (store->access.divisors.back() == 1 ? perElement : perGroup).push_back(store);
  std::map<const Store *, std::string> packs;
  std::set<const Store *> whole; // vectors as they are
  for (const Store *store : perElement)
    if (isPacked(store->value, own) && packed.at(store->value).type == store->access.type &&
        (layout.shifted ? isContiguousRow(store->access, graph.width, layout.vector)
                        : isVectorAccess(store->access, layout.vector))) {
      packs[store] = packedVector(store->value, own);
      whole.insert(store);
    }
  if (perElement.size() > whole.size() || !plan.reductions[number].empty()) {
    for (const Store *store : perElement)
      if (!whole.contains(store) && vectors() && (layout.shifted ? isContiguousRow(store->access, graph.width, layout.vector)
                                       : isVectorAccess(store->access, layout.vector))) {
        packs[store] = writer.fresh("y");
        const DType type = store->access.type;
        writer.line(fmt::format("Vec<{}, {}> {};", isConverted(type) ? "f32" : sourceType(type).str(), layout.vector,
                                packs[store]));
      }
    if (vectors()) {
      writer.line("#pragma unroll");
      writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", layout.vector));
    }
    if (layout.shifted)
      writer.line(fmt::format("const bool inRow = is_inside({} + i, {});", own.chunk, writer.size(graph.width)));
    for (const Store *store : perElement)
      if (!whole.contains(store))
        storeValues(store, packs.contains(store) ? packs[store] : "");
    for (const Node *reduction : plan.reductions[number])
      accumulate(reduction);
    if (vectors())
      writer.line("}");
  }
  for (const Store *store : perElement)
    if (packs.contains(store)) {
      const DType type = store->access.type;
      std::string pack =
          isConverted(type) && !whole.contains(store)
              ? fmt::format("vec_from_f32<{}>({})", sourceType(type).str(), packs[store])
              : packs[store];
      if (layout.shifted) {
        writer.line(fmt::format("{}store_edge_vec({}, {}, {}, {});", active.empty() ? "" : "if (" + active + ") ",
                                pointerNames.at(store), own.chunk, writer.size(graph.width), pack));
        continue;
      }
      if (isReply(store)) {
        pack = local(fmt::format("Vec<{}, {}>", sourceType(type).str(), layout.vector), "reply", fmt::format("as_sent({})", pack));
        sendReply(store, own.chunk, guard(/*ofRows=*/true), pack);
      }
      const std::string offset = columnOffset(store->access, own.chunk);
      writer.line(
          fmt::format("{}store_vec({} + {}, {});", guard(/*ofRows=*/true, store), pointerNames.at(store), offset, pack));
    }
  for (const Store *store : perGroup) {
    const std::string value = groupValue(store->value);
    if (isReply(store)) {
      storeReply(store, own.chunk, fmt::format("{}if ({} % {} == 0) ", guard(/*ofRows=*/true), own.chunk, graph.groupSize), value);
      continue;
    }
    writer.line(guard(/*ofRows=*/true, store) +
                fmt::format("if ({} % {} == 0) {};", own.chunk, graph.groupSize,
                            storeElement(store->access.type, pointerNames.at(store),
                                         columnOffset(store->access, own.chunk), value)));
  }
}

void Emitter::sweep(unsigned number) {
  current = number;
  for (const Node *reduction : plan.reductions[number])
    rowValuesFor(termOf(reduction));
  for (const Store *store : plan.stores[number])
    rowValuesFor(store->value);
  declare(number);
  for (const Node *reduction : plan.reductions[number])
    if (plan.moments.contains(reduction))
      beginMoments(reduction);
  own = Position();
  own.chunk = writer.fresh("column");
  own.lane = "i";
  own.held = layout.inRegisters ? "k" : "";
  own.vector = layout.vector;
  own.column = layout.shifted ? fmt::format("(inRow ? {} + i : 0)", own.chunk)
               : vectors()    ? fmt::format("({} + i)", own.chunk)
                              : own.chunk;
  if (layout.inRegisters) {
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int k = 0; k < {}; ++k) {{", chunkCount()));
    writer.line(fmt::format("const i64 {} = {};", own.chunk, chunkColumn()));
    chunkBody(number);
  } else {
    writer.line(fmt::format("for (i64 {0} = {1}{4}; {0} < {2}; {0} += {3}) {{", own.chunk, threadStart(),
                            writer.size(graph.width), layout.stride(), shift.empty() ? "" : " - " + shift));
    chunkBody(number);
  }
  writer.line("}");
  for (const Node *reduction : plan.reductions[number])
    finishReduction(reduction);
}

void Emitter::storeRow(const Store *store) {
  const std::string value = rowValue(store->value);
  if (isReply(store)) {
    storeReply(store, "", fmt::format("if ({}{} == 0) ", active.empty() ? "" : active + " && ", thread), value);
    return;
  }
  std::string condition;
  for (const std::string &part : {active, store->condition})
    condition += part.empty() ? "" : part + " && ";
  writer.line(fmt::format("if ({}{} == 0)", condition, thread));
  writer.line("  " + storeElement(store->access.type, pointerNames.at(store), "0", value) + ";");
}

void Emitter::emit() {
  header();
  countUses();
  pointers();
  choosePreloads();
  choosePacked();
  preload(/*early=*/true);
  fetchAhead(/*early=*/true);
  if (exchange)
    meetRanks();
  writer.line("pdl_wait();");
  if (exchange)
    writer.line("begin_round(meeting);");
  // No load moves behind the launch: left alone, the assembler spares registers and waits for memory twice. Where rows
  // are split into heads it needs them for the places.
  const bool pinned = !layout.wholeBlock() && graph.headSize == 0;
  if (pinned)
    preload(/*early=*/false);
  if (launches)
    writer.line("pdl_launch_dependents();");
  if (!pinned)
    preload(/*early=*/false);
  fetchAhead(/*early=*/false);
  if (exchange)
    exchangeRows();
  for (unsigned i = 0; i < plan.reductions.size(); ++i) {
    writer.blank();
    sweep(i);
  }
  for (const Store *store : plan.rowStores)
    storeRow(store);
}

} // namespace fusion::row
