#include "codegen/schedule/AttentionHeads.h"

#include "codegen/schedule/RowBody.h"
#include "ir/dialect/Types.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::attention {

namespace {
/// [entry, head, position, column] at strides that no tensor has, by which a dim is known wherever it goes.
View marked(const View &view) {
  View made = view;
  made.strides = {Dim::symbol("stride of entries"), Dim::symbol("stride of heads"),
                  Dim::symbol("stride of positions"), 1};
  return made;
}

/// As the template lays rows out in shared memory: row_pitch.
Dim pitchOf(Value rows) {
  return tensorType(rows).getShape().back() + 16 / static_cast<int64_t>(byteSize(dtype(rows)));
}

/// Where queries lie in the block's shared memory, from row 0 of head 0 on.
View viewOfQueries(Value queries, const KernelContext &context, const Dim &group) {
  View view = View::contiguous(queries, context.shape(queries));
  view.strides = {0, pitchOf(queries), pitchOf(queries) * group, 1};
  return view;
}

/// The same of the rows of a cache, from key 0 on.
View viewOfNewRows(Value cache, const KernelContext &context) {
  View view = View::contiguous(cache, context.shape(cache));
  view.strides = {0, 0, pitchOf(cache), 1};
  return view;
}

/// Why lanes of a warp do not make such rows.
std::optional<std::string> refusesPart(const row::Part &part) {
  if (part.layout.wholeBlock() || part.layout.inCluster() || part.layout.shifted)
    return std::string("heads that take more than a warp");
  const row::Access &to = part.graph.stores.front().access;
  if (part.graph.headSize != 0 || to.columnDims != 1)
    return std::string("rows of several heads, such as a norm of all of them");
  for (const row::Store &store : part.graph.stores) // a placed row also clears one
    if (store.access.index != to.index)
      return std::string("rows that are more than a head");
  return std::nullopt;
}

/// The dims by which a part numbers its rows, from where it stores them at the marked strides.
std::variant<HeadRows, std::string> rowsOf(row::Part &part, const row::Part &markedPart) {
  HeadRows rows{&part, {}};
  const row::Store &store = markedPart.graph.stores.front();
  const row::Access &to = store.access;
  const View like = marked(View{});
  const auto strides = ArrayRef(like.strides).drop_back();
  Dim number = 1;
  for (size_t dim = 0; dim + 1 < to.view.shape.size(); ++dim) {
    if (to.view.shape[dim] == Dim(1))
      continue;
    // Of a placed row Access::rowStep has the positions' stride.
    const bool isPlaced = store.placement && to.view.strides[dim] == Dim(0);
    const auto *place = llvm::find(strides, isPlaced ? to.rowStep : to.view.strides[dim]);
    if (place == strides.end() || to.divisors[dim] != 1)
      return std::string("rows that are not split into entries, heads and positions");
    rows.dims.push_back({static_cast<unsigned>(place - strides.begin()), to.view.shape[dim]});
    number = number * to.view.shape[dim];
  }
  if (!(number == part.graph.rows))
    return std::string("rows that are not split into entries, heads and positions");
  part.graph.rowMajor = true;
  return rows;
}

std::variant<row::Parts, std::string> rowParts(const RopeAttentionParts &parts, const KernelContext &context,
                                               ArrayRef<View> inputs, ArrayRef<View> outputs) {
  KernelContext own = context;
  own.inputs = inputs;
  own.outputs = outputs;
  own.independent = {};
  own.when = {};
  return row::partsOf(parts.heads, own);
}

class Maker {
public:
  Maker(const RopeAttentionParts &parts, const Region &kernel, const KernelContext &context,
        Value keptKeys)
      : parts(parts), kernel(kernel), context(context),
        made(std::make_unique<MadeHeads>(MadeHeads{parts, kernel, context, keptKeys})) {}

  std::variant<std::unique_ptr<MadeHeads>, std::string> run() {
    if (auto reason = findPlaces())
      return *reason;
    auto built = rowParts(parts, context, rowInputs, rowOutputs),
         marking = rowParts(parts, context, markedInputs, markedOutputs);
    for (const auto *one : {&built, &marking})
      if (auto *reason = std::get_if<std::string>(one))
        return *reason;
    made->rowParts = std::move(std::get<row::Parts>(built));
    row::Parts &like = std::get<row::Parts>(marking);
    if (made->rowParts.size() != like.size())
      return std::string("rows in another order");
    for (auto [part, markedPart] : llvm::zip(made->rowParts, like)) {
      auto reason = refusesPart(part);
      if (!reason)
        reason = refusesPart(markedPart);
      if (reason)
        return *reason;
      auto rows = rowsOf(part, markedPart);
      if (auto *why = std::get_if<std::string>(&rows))
        return *why;
      const unsigned output = part.graph.stores.front().access.index;
      if (output != markedPart.graph.stores.front().access.index)
        return std::string("rows in another order");
      const unsigned firstCache = parts.queries ? 1 : 0;
      if (output >= firstCache)
        made->fresh[output - firstCache].push_back(std::get<HeadRows>(rows));
      else if (std::exchange(made->queries, std::get<HeadRows>(rows)).part)
        return std::string("queries that are put together");
      for (row::Store &store : part.graph.stores) {
        const bool isQuery = output < firstCache;
        const Value cache = isQuery ? Value() : parts.caches[output - firstCache].whole;
        if (!isQuery && !made->keptKeys) {
          store.access.index = made->outputOf(cache);
          continue;
        }
        store.into = isQuery ? "queries" : cache == made->keptKeys ? "keys" : "values";
        store.intoType = body::spelling(store.access.type) + " *";
      }
    }
    for (const auto &fresh : made->fresh)
      if (fresh.empty() || fresh.size() > (parts.isExtended ? 1 : 2))
        return std::string("new keys or values that are put together");
    if (parts.queries && !made->queries.part)
      return std::string("no queries");
    return std::move(made);
  }

private:
  std::optional<std::string> findPlaces() {
    rowInputs.assign(context.inputs.begin(), context.inputs.end());
    markedInputs = rowInputs;
    if (parts.queries) {
      const Dim kvHeads = context.shape(parts.caches.front().whole)[1];
      made->outputs.push_back(
          viewOfQueries(parts.queries, context, context.shape(parts.queries)[1].floorDiv(kvHeads)));
      rowOutputs = made->outputs;
      markedOutputs.push_back(marked(made->outputs.front()));
    }
    for (const auto &cache : parts.caches) {
      const View view = context.output(made->outputOf(cache.whole), cache.whole);
      const auto past =
          static_cast<size_t>(llvm::find(kernel.inputs, cache.past) - kernel.inputs.begin());
      auto frontOf = [&](View whole) {
        whole.shape[2] = context.shape(cache.past)[2];
        return whole;
      };
      if (!(rowInputs[past] == frontOf(view)))
        return std::string("a past that is not in place");
      markedInputs[past] = marked(rowInputs[past]);
      made->outputs.push_back(view);
      markedOutputs.push_back(marked(view));
      rowOutputs.push_back(made->keptKeys ? viewOfNewRows(cache.whole, context) : view);
      rowInputs[past] = frontOf(rowOutputs.back());
    }
    return std::nullopt;
  }

  const RopeAttentionParts &parts;
  const Region &kernel;
  const KernelContext &context;
  std::unique_ptr<MadeHeads> made;
  SmallVector<View> rowInputs, rowOutputs, markedInputs, markedOutputs;
};
} // namespace

std::variant<std::unique_ptr<MadeHeads>, std::string>
madeHeads(const RopeAttentionParts &parts, const Region &kernel, const KernelContext &context,
          Value keptKeys) {
  return Maker(parts, kernel, context, keptKeys).run();
}

bool MadeHeads::readsCachesEarly() const {
  return llvm::all_of(parts.caches, [&](const auto &cache) {
    return context.isIndependentOfPredecessor(
        static_cast<unsigned>(llvm::find(kernel.inputs, cache.past) - kernel.inputs.begin()));
  });
}

unsigned MadeHeads::outputOf(Value value) const {
  return static_cast<unsigned>(llvm::find(kernel.outputs, value) - kernel.outputs.begin());
}

unsigned MadeHeads::inputOf(unsigned index) const {
  if (index < kernel.inputs.size())
    return index;
  const Value value = parts.attention.inputs[index];
  for (const auto &cache : parts.caches)
    if (cache.whole == value)
      return static_cast<unsigned>(llvm::find(kernel.inputs, cache.past) - kernel.inputs.begin());
  llvm_unreachable("queries that are made are in no input");
}

void MadeHeads::write(const Problem &problem, int64_t warps, body::KernelSource &source,
                      body::Code &entry) const {
  source.include("attention_decode_heads.cuh");
  KernelContext own = context;
  own.independent = {};
  auto declared = [&](const HeadRows &rows, const std::string &name) {
    return row::BodyPrinter(parts.heads, own, rows.part->graph, rows.part->layout, source, name)
        .within()
        .declare();
  };
  auto number = [&](const HeadRows &rows) {
    static constexpr const char *indices[] = {"entry", "head", "position"};
    std::string text;
    for (const auto &[dim, size] : rows.dims)
      text = text.empty()
                 ? indices[dim]
                 : fmt::format("{} * {} + {}", text.find(' ') == std::string::npos ? text : "(" + text + ")",
                               source.size(size), indices[dim]);
    return fmt::format("[&](i64 entry, i64 head, i64 position) {{ return {}; }}",
                       text.empty() ? "(i64)0" : text);
  };
  std::string places;
  if (queries.part)
    places += fmt::format(", int rows, {} *queries", body::spelling(dtype(parts.queries)));
  if (keptKeys)
    places += fmt::format(", {} *keys, {} *values", body::spelling(problem.storedKeys.type),
                          body::spelling(problem.storedValues.type));
  entry.line(fmt::format("const auto heads = [&](const DecodeTile &tile{}) {{", places));
  if (queries.part) {
    const auto [queryConfig, queryBody] = declared(queries, "Queries");
    entry.line(fmt::format("make_queries<Config, {}>({}, tile, rows, {},", queryConfig, queryBody,
                           source.size(problem.group)));
    entry.line("    " + number(queries) + ");");
  }
  for (auto [index, all] : llvm::enumerate(fresh)) {
    const bool isKeys = parts.caches[index].whole == problem.storedKeys.tensor;
    for (auto [place, rows] : llvm::enumerate(all)) {
      const std::string name = fmt::format("{}{}", isKeys ? "Keys" : "Values", place == 0 ? "" : "Behind");
      const auto [config, body] = declared(rows, name);
      entry.line(fmt::format("make_new_rows<{}>({}, tile, {}, {},", config, body, warps - (isKeys ? 2 : 1),
                             source.size(problem.queries)));
      entry.line("    " + number(rows) + ");");
    }
  }
  entry.line("};");
}

} // namespace fusion::attention
