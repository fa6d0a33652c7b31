#include "codegen/schedule/AttentionBody.h"

#include "codegen/body/Printer.h"
#include "codegen/schedule/AttentionHeads.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

static std::string typeOf(Value value) { return body::spelling(dtype(value)); }

static std::string typeOf(const Stored &stored) {
  return stored.packed ? "i4_pair" : body::spelling(stored.type);
}

KernelBuilder::KernelBuilder(const Problem &problem, StringRef variant, const Needs &needs)
    : problem(problem), op(problem.op), variant("attention_" + variant.str()), needs(needs),
      source(problem.made ? problem.made->kernel : problem.region,
             problem.made ? problem.made->context.inputs : problem.context.inputs) {
  source.include(this->variant + ".cuh");
  source.config = body::Config("Config", "AttentionConfig");
  writeConfig();
}

unsigned KernelBuilder::inputOf(Value operand) const {
  const unsigned index = problem.inputOf(operand);
  return problem.made ? problem.made->inputOf(index) : index;
}

void KernelBuilder::config(std::string_view name, double value) {
  source.config.set("f32", name, body::literal(DType::F32, value));
}

void KernelBuilder::writeConfig() {
  source.config.setType("Query", typeOf(op.getQ()));
  source.config.setType("Key", typeOf(problem.storedKeys));
  source.config.setType("Value", typeOf(problem.storedValues));
  if (problem.hasCodes()) {
    source.config.set("key_scales_by_column", problem.storedKeys.byColumn);
    source.config.set("value_scales_by_column", problem.storedValues.byColumn);
  }
  source.config.setType("Mask", problem.mask ? typeOf(problem.mask) : "void");
  source.config.set("int", "depth", fmt::format("{}, value_depth = {}", problem.depth, problem.valueDepth));
  // A window of 2^31 keys and more leaves no key out: a head has fewer.
  const auto window = static_cast<int64_t>(op.getWindow());
  source.config.set("window", window > 0 && window < INT32_MAX ? window : 0);
  source.config.set("causal", static_cast<bool>(op.getCausal()));
  source.config.set("bounded_above", problem.bounds && problem.bounds->above.limit);
  source.config.set("bounded_below", problem.bounds && problem.bounds->below.limit);
  source.config.set("zero_masked_rows", static_cast<bool>(op.getZeroMaskedRows()));
  source.config.set("page_size", problem.pageSize);
  source.config.set("ragged", problem.isRagged);
  if (problem.table)
    source.config.setType("Page", typeOf(problem.table));
  if (problem.sink)
    source.config.set("has_sink", true);
  if (problem.made) {
    source.config.set("makes_heads", true);
    source.config.set("makes_queries", problem.made->queries.part != nullptr);
    source.config.set("extends_keys", problem.made->parts.isExtended);
    source.config.set("keeps_new_rows", static_cast<bool>(problem.made->keptKeys));
    if (problem.made->keptKeys)
      source.config.set("new_rows", problem.mostQueries);
  }
}

std::string KernelBuilder::term(const std::string &index, const Dim &stride) {
  if (stride == Dim(0))
    return "";
  return stride == Dim(1) ? " + " + index : fmt::format(" + {} * {}", index, source.body.size(stride));
}

void KernelBuilder::count(const std::string &name, const Dim &dim) {
  source.body.method(fmt::format("DEVICE i64 {}() const", name), source.body.size(dim));
}

void KernelBuilder::writeQueries() {
  const View &q = problem.view(problem.firstQueries());
  if (problem.isRagged) {
    source.body.method(
        fmt::format("DEVICE const {} *query(i64, i64 head, i64 query, int column) const", typeOf(op.getQ())),
        input(op.getQ()) + offset(q.offset) + term("head", q.strides[1]) + term("query", q.strides[0]) +
            term("column", q.strides[3]));
    return;
  }
  auto place = [&](Value queries, const std::string &column) {
    const View &view = problem.view(queries);
    return input(queries) + offset(view.offset) + term("entry", view.strides[0]) +
           term("head", view.strides[1]) + term("query", view.strides[2]) + term(column, view.strides[3]);
  };
  std::string query = place(problem.firstQueries(), "column");
  if (const auto &joined = problem.joinedQueries)
    query = fmt::format("column < {0} ? {1} : {2}", joined->columns, query,
                        place(joined->second, fmt::format("(column - {})", joined->columns)));
  source.body.method(fmt::format("DEVICE const {} *query(i64 entry, i64 head, i64 query, int column) const",
                                 typeOf(op.getQ())),
                     query);
}

void KernelBuilder::writeRows(const char *name, const Stored &stored) {
  const Value operand = stored.tensor;
  const View view = problem.storedView(stored);
  const std::string type = typeOf(stored);
  const std::string first = input(operand) + offset(view.offset) +
                            (stored.paging ? "" : term("entry", view.strides[0])) +
                            term("kv_head", view.strides[1]);
  source.body.method(fmt::format("DEVICE const {} *{}_rows(i64{}, i64 kv_head) const", type, name,
                                 stored.paging ? "" : " entry"),
                     stored.packed ? fmt::format("reinterpret_cast<const {} *>({})", type, first) : first);
  if (stored.paging) {
    count(fmt::format("{}_pages", name), view.shape[0]);
    count(fmt::format("{}_page_stride", name), view.strides[0]);
  }
  count(fmt::format("{}_stride", name), view.strides[2]);
  if (needs.columnStrides)
    count(fmt::format("{}_column_stride", name), view.strides[3]);
  if (!stored.scale)
    return;
  const View &scales = problem.view(stored.scale);
  std::string place = input(stored.scale) + offset(scales.offset);
  if (stored.byHead)
    place += term("kv_head", stored.headStride(scales));
  if (stored.byColumn)
    source.body.method(fmt::format("DEVICE const f32 *{}_scales(i64 kv_head) const", name), place);
  else
    source.body.method(fmt::format("DEVICE f32 {}_scale(i64 kv_head) const", name),
                       "to_f32(load(" + place + "))");
}

/// Where new rows of a cache go, from key 0 on.
void KernelBuilder::writeNewRows(const char *name, const Stored &stored) {
  const View view = problem.storedView(stored);
  const std::string signature =
      fmt::format("DEVICE {} *new_{}_rows(i64 entry, i64 kv_head) const", typeOf(stored), name);
  source.body.method(signature,
                     source.body.output(problem.made->outputOf(stored.tensor)) + offset(view.offset) +
                         term("entry", view.strides[0]) + term("kv_head", view.strides[1]));
}

void KernelBuilder::writeTable() {
  if (!problem.table)
    return;
  const View &table = problem.view(problem.table);
  std::string entry = "entry";
  if (problem.sequences) {
    const View &sequences = problem.view(problem.sequences);
    source.body.method("DEVICE i64 sequence(i64 entry) const",
                       fmt::format("(i64)load({}{}{})", input(problem.sequences), offset(sequences.offset),
                                   term("entry", sequences.strides[0])));
    entry = fmt::format("gather_index(sequence(entry), {})", source.body.size(table.shape[0]));
  }
  source.body.method(fmt::format("DEVICE const {} *table_row(i64 entry) const", typeOf(problem.table)),
                     input(problem.table) + offset(table.offset) + term(entry, table.strides[0]));
  count("table_stride", table.strides[1]);
}

/// The first element for an entry, a head and a query of what broadcasts against the scores.
std::string KernelBuilder::rowOf(Value operand) {
  const View &view = problem.view(operand);
  const std::string indices[] = {problem.isRagged ? "query" : "entry", "head", "query"};
  std::string place = input(operand) + offset(view.offset);
  for (size_t fromEnd = 1; fromEnd < view.shape.size(); ++fromEnd) {
    const size_t dim = view.shape.size() - 1 - fromEnd;
    if (view.shape[dim] != Dim(1))
      place += term(indices[3 - fromEnd], view.strides[dim]);
  }
  return place;
}

void KernelBuilder::writeBound(const char *name, const nn::KeyBound &bound, const char *exclusion) {
  if (bound.limit)
    source.body.method(
        fmt::format("DEVICE i64 {}(i64{}, i64 query) const", name, problem.isRagged ? "" : " entry"),
        fmt::format("(i64){}({}){}", knowsBoundsEarly() ? "load_early" : "load", rowOf(bound.limit),
                    bound.isExclusive ? exclusion : ""));
}

bool KernelBuilder::knowsBoundsEarly() const {
  const KernelContext &context = problem.made ? problem.made->context : problem.context;
  auto isKnown = [&](const nn::KeyBound &bound) {
    return !bound.limit || context.isIndependentOfPredecessor(inputOf(bound.limit));
  };
  return problem.bounds && isKnown(problem.bounds->above) && isKnown(problem.bounds->below);
}

void KernelBuilder::writeMask() {
  if (!problem.mask)
    return;
  const View &view = problem.view(problem.mask);
  const std::string type = typeOf(problem.mask), place = rowOf(problem.mask);
  const Dim stride = view.shape.empty() || view.shape.back() == Dim(1) ? Dim(0) : view.strides.back();
  source.body.method(fmt::format("DEVICE const {} *mask_row(i64 entry, i64 head, i64 query) const", type),
                     place);
  source.body.method(fmt::format("DEVICE const {0} *mask(const {0} *row, i64 key) const", type),
                     "row" + term("key", stride));
}

void KernelBuilder::writeSink() {
  if (problem.sink)
    source.body.method("DEVICE f32 sink(i64 entry, i64 head) const",
                       fmt::format("load({})", rowOf(problem.sink->sink)));
}

void KernelBuilder::writeScore() {
  scalar::Graph graph;
  auto number = [&](const APFloat &value) { return graph.number(DType::F32, value.convertToDouble()); };
  const scalar::Value product = graph.input("s[i]", DType::F32, scalar::Level::Element);
  scalar::Value score = graph.mul(number(op.getScale()), product);
  if (op.getSoftcap().convertToDouble() > 0) {
    const scalar::Value cap = number(op.getSoftcap());
    score = graph.mul(cap, graph.call("tanh_", {graph.div(score, cap)}));
  }
  std::string mask;
  if (problem.mask) {
    const bool keeps = dtype(problem.mask) == DType::Bool;
    mask = fmt::format(", const {} (&mask)[N]", keeps ? "bool" : "f32");
    const scalar::Value element =
        graph.input("mask[i]", keeps ? DType::Bool : DType::F32, scalar::Level::Element);
    score = keeps ? graph.select(element, score,
                                 graph.number(DType::F32, -std::numeric_limits<double>::infinity()))
                  : graph.add(score, element);
  }
  body::Code code(2);
  code.line("#pragma unroll");
  code.line("for (int i = 0; i < N; ++i) {");
  body::Printer printer(graph, source.names);
  const std::string value = printer.value(score, code);
  code.line("s[i] = " + value + ";");
  code.line("}");
  source.body.method("template <int N> DEVICE void score(f32 (&s)[N]" + mask + ") const", code);
}

// The result is contiguous, in the order of dims that a transpose after it gives.
void KernelBuilder::writeStore() {
  const SmallVector<int64_t> order = problem.resultOrder();
  const std::string indices[] = {problem.isRagged ? "query" : "entry", "head",
                                 problem.isRagged ? "0" : "query", "column"};
  const Dim sizes[] = {problem.batch, problem.heads, problem.queries, Dim(problem.valueDepth)};
  body::Code code(2);
  const unsigned output = problem.made ? problem.made->outputOf(problem.made->parts.result) : 0;
  code.line(fmt::format("store_vec({} + {}, vec_from_f32<{}>(values));", source.body.output(output),
                        source.body.place(indices, sizes, order), typeOf(op.getY())));
  source.body.method(fmt::format("template <int N> DEVICE void store(i64{}, i64 head, i64 query, int column, "
                                 "const Vec<f32, N> &values) const",
                                 problem.isRagged ? "" : " entry"),
                     code);
}

void KernelBuilder::writeOperands() {
  const bool makesQueries = problem.made && problem.made->queries.part;
  if (!makesQueries)
    writeQueries();
  writeRows("key", problem.storedKeys);
  writeRows("value", problem.storedValues);
  if (problem.made && problem.made->keptKeys) {
    writeNewRows("key", problem.storedKeys);
    writeNewRows("value", problem.storedValues);
  }
  writeTable();
  writeMask();
  if (problem.bounds) {
    writeBound("last_key", problem.bounds->above, " - 1");
    writeBound("first_key", problem.bounds->below, " + 1");
  }
}

KernelDraft KernelBuilder::finish(const Launch &launch) {
  if (needs.batch)
    count("batch", problem.batch);
  count("kv_heads", problem.kvHeads);
  count("group", problem.group);
  count("query_count", problem.isRagged ? problem.batch : problem.queries);
  count("key_count", problem.keys);
  if (needs.operands)
    writeOperands();
  writeSink();
  if (needs.score)
    writeScore();
  writeStore();
  body::Entry entry;
  entry.schedule = "attention";
  entry.function = variant;
  entry.arguments = launch.arguments;
  const bool rotates = problem.made && llvm::any_of(problem.made->parts.heads.ops, llvm::IsaPred<nn::RopeOp>);
  entry.name = fmt::format("{}{}_{}_d{}",
                           rotates        ? "rope_"
                           : problem.made ? "write_"
                                          : "",
                           variant, typeOf(op.getQ()), problem.depth);
  if (problem.made) {
    body::Code code;
    problem.made->write(problem, launch.warps, source, code);
    code.line(fmt::format("{}<Config>({}, heads);", variant, source.body.instance()));
    entry.schedule = "rope_attention";
    entry.code = code.text();
  }
  entry.threads = static_cast<uint32_t>(32 * launch.warps);
  entry.residentBlocks = static_cast<uint32_t>(launch.residentBlocks);
  entry.clusterBlocks = static_cast<uint32_t>(launch.clusterBlocks);
  KernelDraft draft = source.finish(entry);
  draft.kernel.dynamicSharedBytes = static_cast<uint32_t>(launch.dynamicSharedBytes);
  const Dim tiles = problem.isRagged
                        ? problem.batch.ceilDiv(launch.tileRows / problem.group.value()) * problem.kvHeads *
                              Dim(launch.tileBlocks)
                        : problem.rows.ceilDiv(launch.tileRows) * problem.kvHeads * problem.batch;
  draft.gridX = launch.mostBlocks > 0 ? Dim::min(Dim(launch.mostBlocks), tiles)
                                      : tiles * Dim(launch.clusters * launch.clusterBlocks);
  return draft;
}

} // namespace fusion::attention
