// The loops of a row kernel.
#include "codegen/schedule/RowEmitter.h"

#include <fmt/format.h>

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
    writer.line(fmt::format("{} {}[{}];", reduction->type, arrays[reduction], layout.chunks));
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int k = 0; k < {}; ++k)", layout.chunks));
    writer.line(fmt::format("  {}[k] = {};", arrays[reduction], identity(*reduction)));
  }
  for (const Node &node : graph.nodes)
    if (auto kept = plan.kept.find(&node); kept != plan.kept.end() && kept->second == number) {
      arrays[&node] = writer.fresh("keep");
      writer.line(fmt::format("{} {}[{}];", node.type, arrays[&node], layout.chunks * layout.vector));
    }
}

void Emitter::accumulate(const Node *reduction) {
  const std::string value = element(reduction->operands[0], own);
  const std::string into = reduction->perGroup ? arrays.at(reduction) + "[k]" : accumulators.at(reduction);
  writer.line(fmt::format("{} = {};", into, combine(*reduction, into, value)));
}

void Emitter::finishReduction(const Node *reduction) {
  static const char *const names[] = {"sum", "max", "min"};
  if (reduction->perGroup) {
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int k = 0; k < {}; ++k)", layout.chunks));
    writer.line(fmt::format("  {0}[k] = lanes_{1}<{2}>({0}[k]);", arrays.at(reduction),
                            names[static_cast<int>(reduction->reduction)], graph.groupSize / layout.vector));
    return;
  }
  const std::string mine = accumulators.at(reduction);
  if (isPlainReduction(*reduction)) {
    rowNames[reduction] =
        local("f32", "total",
              fmt::format("{}_{}<{}>({})", layout.wholeBlock() ? "block" : "lanes",
                          names[static_cast<int>(reduction->reduction)], layout.threadsPerRow, mine));
    return;
  }
  writer.line("#pragma unroll");
  writer.line(fmt::format("for (int mask = {}; mask > 0; mask /= 2) {{", layout.threadsPerRow / 2));
  writer.line(fmt::format("const {} other = shuffle_xor({}, mask);", reduction->type, mine));
  writer.line(fmt::format("{} = {};", mine, combine(*reduction, mine, "other")));
  writer.line("}");
  rowNames[reduction] = mine;
}

static std::string storedForm(DType type, const std::string &value) {
  return registerType(type) == sourceType(type)
             ? value
             : fmt::format("from_f32<{}>({})", sourceType(type).str(), value);
}

void Emitter::chunkBody(unsigned number) {
  positions.clear();
  groupNames.clear();
  vectorNames.clear();
  elementNames.clear();
  for (const Node *reduction : plan.reductions[number])
    prepare(reduction->operands[0], own);
  for (const Store *store : plan.stores[number])
    prepare(store->value, own);
  const bool perGroupOnly =
      plan.reductions[number].empty() && llvm::all_of(plan.stores[number], [](const Store *store) {
        return store->access.divisors.back() != 1;
      });
  std::map<const Store *, std::string> packs;
  if (!perGroupOnly) {
    for (const Store *store : plan.stores[number])
      if (vectors() && isVectorAccess(store->access, layout.vector)) {
        packs[store] = writer.fresh("y");
        writer.line(fmt::format("Vec<{}, {}> {};", sourceType(store->access.type).str(), layout.vector,
                                packs[store]));
      }
    if (vectors()) {
      writer.line("#pragma unroll");
      writer.line(fmt::format("for (int i = 0; i < {}; ++i) {{", layout.vector));
    }
    for (const Store *store : plan.stores[number]) {
      if (store->access.divisors.back() != 1)
        continue;
      const std::string value = element(store->value, own);
      if (packs.contains(store)) {
        writer.line(fmt::format("{}[i] = {};", packs[store], storedForm(store->access.type, value)));
        continue;
      }
      const std::string offset = columnOffset(store->access, own.column);
      writer.line((active.empty() ? "" : fmt::format("if ({}) ", active)) +
                  storeElement(store->access.type, pointerNames.at(store), offset, value) + ";");
    }
    for (const Node *reduction : plan.reductions[number])
      accumulate(reduction);
    if (vectors())
      writer.line("}");
  }
  for (const auto &[store, pack] : packs) {
    const std::string offset = columnOffset(store->access, own.chunk);
    writer.line(fmt::format("{}store_vec({} + {}, {});", active.empty() ? "" : fmt::format("if ({}) ", active),
                            pointerNames.at(store), offset, pack));
  }
  for (const Store *store : plan.stores[number])
    if (store->access.divisors.back() != 1) {
      const std::string value = groupValue(store->value);
      writer.line(fmt::format("if ({}{} % {} == 0) {};", active.empty() ? "" : active + " && ", own.chunk,
                              graph.groupSize,
                              storeElement(store->access.type, pointerNames.at(store),
                                           columnOffset(store->access, own.chunk), value)));
    }
}

void Emitter::sweep(unsigned number) {
  current = number;
  for (const Node *reduction : plan.reductions[number])
    rowValuesFor(reduction->operands[0]);
  for (const Store *store : plan.stores[number])
    rowValuesFor(store->value);
  declare(number);
  const int64_t vector = layout.vector, stride = vector * layout.threadsPerRow;
  own = Position();
  own.chunk = writer.fresh("column");
  own.lane = "i";
  own.column = vectors() ? fmt::format("({} + i)", own.chunk) : own.chunk;
  const std::string start = threadStart();
  if (layout.inRegisters) {
    writer.line("#pragma unroll");
    writer.line(fmt::format("for (int k = 0; k < {}; ++k) {{", layout.chunks));
    writer.line(fmt::format("const i64 {} = k * {} + {};", own.chunk, stride, start));
    const bool guarded = layout.guarded(*graph.width.constant());
    if (guarded)
      writer.line(fmt::format("if ({} < {}) {{", own.chunk, writer.size(graph.width)));
    chunkBody(number);
    if (guarded)
      writer.line("}");
  } else {
    writer.line(fmt::format("for (i64 {0} = {1}; {0} < {2}; {0} += {3}) {{", own.chunk, start,
                            writer.size(graph.width), stride));
    chunkBody(number);
  }
  writer.line("}");
  for (const Node *reduction : plan.reductions[number])
    finishReduction(reduction);
}

void Emitter::storeRow(const Store *store) {
  const std::string value = rowValue(store->value);
  writer.line(fmt::format("if ({}{} == 0)", active.empty() ? "" : active + " && ", thread));
  writer.line("  " + storeElement(store->access.type, pointerNames.at(store), "0", value) + ";");
}

void Emitter::emit() {
  header();
  pointers();
  choosePreloads();
  preload(/*constants=*/true);
  writer.line("pdl_wait();");
  writer.line("pdl_launch_dependents();");
  preload(/*constants=*/false);
  for (unsigned i = 0; i < plan.reductions.size(); ++i) {
    writer.blank();
    sweep(i);
  }
  for (const Store *store : plan.rowStores)
    storeRow(store);
}

} // namespace fusion::row
