#include "codegen/schedule/RowBody.h"

#include "codegen/body/Printer.h"
#include "ir/base/PlainText.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::row {

void Writer::comment(Operation *op) {
  const std::string where = plainText(locationName(op->getLoc()));
  line("// " + op->getName().getStringRef() + (where.empty() ? "" : "  " + where));
}

body::Code Writer::captured(llvm::function_ref<void()> write) {
  body::Code own = std::exchange(code, body::Code(2));
  write();
  return std::exchange(code, std::move(own));
}

std::string Writer::print(const scalar::Graph &graph, scalar::Value value) {
  body::Printer printer(graph, source.names);
  return print(printer, value);
}

std::string BodyPrinter::local(const std::string &type, StringRef stem, const std::string &expression) {
  std::string name = writer.fresh(stem);
  writer.line(fmt::format("const {} {} = {};", type, name, expression));
  return name;
}

std::string BodyPrinter::rowMember(const std::string &type, StringRef stem) {
  rowMembers.emplace_back(type.back() == '*' ? type : type + " ", writer.fresh(stem));
  return "row." + rowMembers.back().second;
}

std::string BodyPrinter::liveMember(const std::string &type, StringRef stem, const std::string &count) {
  const std::string name = writer.fresh(stem);
  liveMembers.emplace_back(type + " ", fmt::format("{}[{}]", name, count));
  return "live." + name;
}

std::string BodyPrinter::vectorOf(DType type) const {
  return vectors() ? fmt::format("Vec<{}, {}>", body::spelling(type), layout.vector)
                   : body::spelling(type);
}

void BodyPrinter::comment(const Node *node) {
  if (!node->op || node->op == commented)
    return;
  commented = node->op;
  writer.comment(node->op);
}

void BodyPrinter::countUses() {
  std::vector<const Node *> pending;
  for (const Store &store : graph.stores) {
    pending.push_back(store.value);
    if (store.row)
      pending.push_back(store.row);
  }
  while (!pending.empty()) {
    const Node *node = pending.back();
    pending.pop_back();
    if (uses[node]++ == 0 && !isReceived(node))
      pending.insert(pending.end(), node->operands.begin(), node->operands.end());
  }
}

void BodyPrinter::function(const std::string &signature, llvm::function_ref<void()> write,
                           bool mayBeMissing) {
  const body::Code code = writer.captured(write);
  if (!code.empty() || !mayBeMissing)
    writer.method(fmt::format("DEVICE {} const", signature), code);
}

void BodyPrinter::pointerFor(const void *user, const Access &access, bool isOutput, const std::string &array,
                             const std::string &arrayType) {
  const DimShape &outer = graph.outerDims[access.outer];
  auto &indices = outerIndices[access.outer];
  if (!indices)
    indices = rowIndices(outer);
  SmallVector<scalar::Value> index;
  for (size_t i = 0; i < outer.size(); ++i)
    index.push_back(places.div((*indices)[i], places.index(access.divisors[i])));
  index.resize(access.view.shape.size(), places.index(0));
  const std::string type =
      !arrayType.empty() ? arrayType : (isOutput ? "" : "const ") + body::spelling(access.type) + " *";
  const std::string base = !array.empty() ? writer.argument(type, array)
                           : isOutput     ? writer.output(access.index)
                                          : writer.input(access.index);
  const std::string name = rowMember(type, isOutput ? "to" : "from");
  pointerNames[user] = name;
  pointers.push_back({name, base, writer.address(places, access.view, index)});
}

/// The pointers of a row.
void BodyPrinter::rowFunction() {
  outerIndices.resize(graph.outerDims.size());
  function("Row row(i64 index)", [&] {
    writer.line("Row row;");
    for (const Node &node : graph.nodes)
      if (node.kind == Node::Kind::Load && !node.summed && uses.contains(&node))
        pointerFor(&node, node.access, false, node.from);
    for (const Store &store : graph.stores)
      pointerFor(&store, store.access, true, store.into, store.intoType);
    std::vector<scalar::Value> offsets;
    for (const RowPointer &pointer : pointers)
      offsets.push_back(pointer.offset);
    body::Printer printer(places, kernel.names);
    printer.announce(offsets);
    for (const auto &[name, base, offset] : pointers) {
      std::string text = writer.print(printer, offset);
      if (llvm::count(offsets, offset) > 1 && text.find(' ') != std::string::npos) {
        text = local("i64", "at", text);
        printer.bind(offset, text);
      }
      writer.line(fmt::format("{} = {}{};", name, base, places.isInteger(offset, 0) ? "" : " + " + text));
    }
    writer.line("return row;");
  });
  if (!layout.shifted)
    return;
  for (const Node &node : graph.nodes)
    if (node.kind == Node::Kind::Load && pointerNames.contains(&node) &&
        isContiguousRow(node.access, graph.width, layout.vector)) {
      function("i64 misalignment(const Row &row)", [&] {
        writer.line(fmt::format("return ({} - {}) % {};", pointerNames.at(&node),
                                writer.input(node.access.index), layout.vector));
      });
      return;
    }
}

void BodyPrinter::sizes() {
  auto size = [&](const std::string &name, const Dim &dim) {
    writer.method(fmt::format("DEVICE i64 {}() const", name), writer.size(dim));
  };
  size("rows", graph.rows);
  if (!layout.inRegisters)
    size("width", graph.width);
}

/// What is requested before the first pass.
void BodyPrinter::requests() {
  choosePreloads();
  choosePacked();
  for (bool early : {true, false}) {
    const std::string when = early ? "BeforeWait" : "AfterWait";
    function(
        fmt::format("void choose({}, Row &row)", when), [&] { choose(early); }, /*mayBeMissing=*/true);
    function(
        fmt::format("void request({}, const RowChunk &at, const Row &row, Live &live)", when),
        [&] { preload(early); }, /*mayBeMissing=*/true);
    function(
        fmt::format("void scalars({}, Row &row)", when), [&] { scalars(early); }, /*mayBeMissing=*/true);
    function(
        fmt::format("void prefetch({}, const Row &row)", when), [&] { prefetch(early); },
        /*mayBeMissing=*/true);
  }
}

void BodyPrinter::passFunctions(unsigned number) {
  current = number;
  declareLive(number);
  function(fmt::format("void pass(Pass<{}>, const RowChunk &at, Row &row, Live &live)", number),
           [&] { pass(number); });
  function(
      fmt::format("void finish(Pass<{}>, const Thread &thread, Row &row, Live &live)", number),
      [&] { finish(number); }, /*mayBeMissing=*/true);
}

/// One value per row each.
void BodyPrinter::storeFunction() {
  function(
      "void store_row(Row &row)",
      [&] {
        for (const Store *store : plan.rowStores) {
          const std::string value = rowValue(store->value);
          if (isGathered(store))
            storeGathered(store, "", "", value);
          else
            writer.line((store->condition.empty() ? "" : "if (" + store->condition + ") ") +
                        body::storeElement(store->access.type, pointerNames.at(store), "0", value) + ";");
        }
      },
      /*mayBeMissing=*/true);
}

body::Config BodyPrinter::config() const {
  body::Config config(name + "Config", exchange ? "AllReduceRowConfig" : "RowConfig");
  config.set("threads", layout.blockThreads);
  config.set("threadsPerRow", layout.threadsPerRow);
  config.set("vector", layout.vector);
  config.set("passes", plan.reductions.size());
  if (layout.inRegisters) {
    config.set("chunks", layout.chunks);
    config.set("i64", "width", std::to_string(*graph.width.constant()));
  }
  if (layout.inCluster())
    config.set("cluster", layout.clusterBlocks);
  if (layout.shifted)
    config.set("shifted", true);
  if (layout.prefetchDistance != 0)
    config.set("i64", "prefetchDistance", std::to_string(layout.prefetchDistance));
  // Where rows are split into heads the registers are needed for the places.
  if (!layout.wholeBlock() && graph.headSize == 0)
    config.set("loadsFirst", true);
  if (!launches)
    config.set("launches", false);
  else if (!exchange && context.mayLaunchEarly) {
    config.set("launches_early", true);
    // Measured: 128 blocks that quantise take up to 1.65 times as long where they start early, few do not
    // (benchmarks/notes-rows.md).
    if (quantizes)
      config.set("earlyBlocks", 64);
  }
  if (exchange)
    exchange->configure(config);
  return config;
}

std::string BodyPrinter::structs() const {
  auto structOf = [](const char *type, const body::Members &members) {
    return members.empty() ? fmt::format("  struct {} {{}};\n", type)
                           : fmt::format("  struct {} {{\n{}  }};\n", type, body::declarations(members, 2));
  };
  return fmt::format("  using Thread = RowThread<{}Config>;\n", name) + structOf("Row", rowMembers) +
         structOf("Live", liveMembers);
}

std::pair<std::string, std::string> BodyPrinter::declare() {
  countUses();
  sizes();
  rowFunction();
  requests();
  if (exchange)
    exchangeFunctions();
  for (unsigned i = 0; i < plan.reductions.size(); ++i)
    passFunctions(i);
  storeFunction();
  writer.declare(structs());
  kernel.declare(config().text() + writer.text());
  return {name + "Config", writer.instance()};
}

std::string BodyPrinter::print(StringRef block) {
  const char *function = exchange ? "all_reduce_row" : "row";
  kernel.include(fmt::format("{}.cuh", function));
  const auto [config, instance] = declare();
  return fmt::format("{}_kernel<{}>({}{}{});", function, config, instance,
                     exchange ? ", " + kernel.exchange() : "", block.empty() ? "" : ", " + block.str());
}

} // namespace fusion::row
