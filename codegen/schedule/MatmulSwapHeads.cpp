// Heads of the columns of gemm_swap_ab: what follows the matmuls of queries, keys and values, of each head by
// itself, in the kernel that multiplies.
#include "codegen/schedule/MatmulSwap.h"
#include "codegen/schedule/RowBody.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::matmul {

namespace {
constexpr int64_t tile = 64, mostTiles = 4;
constexpr uint32_t threads = 128; // that multiply

/// As the template lays it out: tile_pitch.
int64_t pitchOf(int64_t tiles) { return tile * tiles + 8; }

/// Where results lie in a tile: rows of A at the pitch.
View viewInTile(Value value, const DimShape &shape, int64_t pitch) {
  View view = View::contiguous(value, shape);
  Dim stride = pitch;
  for (size_t dim = shape.size() - 1; dim-- > 0;) {
    view.strides[dim] = stride;
    stride = stride * shape[dim];
  }
  return view;
}

/// Of a part whose rows are heads of one result, input `made` and later of the region.
std::variant<HeadPart, std::string> headsOf(row::Part &part, unsigned made, const Problem &problem,
                                            int64_t pitch) {
  HeadPart head;
  head.part = &part;
  part.graph.rowMajor = true;
  const row::Access *seen = nullptr;
  for (row::Node &node : part.graph.nodes) {
    if (node.kind != row::Node::Kind::Load || node.access.index < made)
      continue;
    if (node.level != row::Level::Element || node.access.columnDims != 1 ||
        (seen && (seen->index != node.access.index || seen->outer != node.access.outer ||
                  !(seen->view == node.access.view))))
      return std::string("rows that are not heads of one matmul");
    seen = &node.access;
    node.from = "columns";
  }
  if (!seen)
    return std::string("rows that no matmul makes, such as a past that is not in place");
  const View &view = seen->view;
  const std::optional<int64_t> width = part.graph.width.constant(), first = view.offset.constant();
  if (!width || !first || view.strides.back() != Dim(1) || *width > tile * mostTiles)
    return std::string("heads of unknown width, or wider than the columns of a block");
  DimShape dims, strides; // of rows of A
  Dim inner = 1;
  bool hasHeads = false;
  for (size_t dim = 0; dim + 1 < view.shape.size(); ++dim) {
    if (view.shape[dim] == Dim(1))
      continue;
    if (view.strides[dim] == Dim(*width) && view.shape[dim].constant() && !hasHeads) {
      hasHeads = true;
      head.heads = *view.shape[dim].constant();
      inner = 1;
      continue;
    }
    dims.push_back(view.shape[dim]);
    strides.push_back(view.strides[dim]);
    inner = inner * view.shape[dim];
  }
  const std::optional<Dim> stride = mergedStride(dims, strides);
  if (!stride || !(dims.empty() || *stride == Dim(pitch)) || !(product(dims) == problem.m) ||
      !(part.graph.rows == problem.m * Dim(head.heads)) || *first % *width != 0)
    return std::string("rows that are not the heads of all rows of the matmul");
  head.inner = hasHeads ? inner : Dim(1);
  head.first = *first;
  head.width = *width;
  if (part.layout.blockThreads != threads || part.layout.wholeBlock() || part.layout.shifted)
    return std::string("heads that take more than a warp");
  return head;
}

std::optional<std::string> build(TileHeads &made, unsigned firstMade, ArrayRef<Value> results,
                                 const KernelContext &context) {
  const int64_t pitch = pitchOf(made.tiles);
  for (auto [index, value] : llvm::enumerate(results))
    made.inputs[firstMade + index] = viewInTile(value, context.shape(value), pitch);
  KernelContext own = context;
  own.inputs = made.inputs;
  own.outputs = made.outputs;
  own.independent = {};
  own.when = {};
  auto parts = row::partsOf(made.region, own);
  if (auto *reason = std::get_if<std::string>(&parts))
    return *reason;
  made.parts = std::move(std::get<row::Parts>(parts));
  made.heads.clear();
  for (row::Part &part : made.parts) {
    auto head = headsOf(part, firstMade, made.problem, pitch);
    if (auto *reason = std::get_if<std::string>(&head))
      return *reason;
    HeadPart &found = std::get<HeadPart>(head);
    for (const row::Node &node : part.graph.nodes)
      if (node.kind == row::Node::Kind::Load && node.access.index >= firstMade)
        for (auto [place, matmul] : llvm::enumerate(made.problem.matmuls))
          if (llvm::is_contained(matmul.outputs, node.access.index - firstMade))
            found.matmul = static_cast<unsigned>(place);
    made.heads.push_back(found);
    for (row::Store &store : part.graph.stores)
      store.access.index = made.results[store.access.index];
  }
  return std::nullopt;
}
} // namespace

std::variant<std::unique_ptr<TileHeads>, std::string> tileHeads(const Region &products, const Region &after,
                                                                const Region &kernel, const Problem &problem,
                                                                const KernelContext &context) {
  auto made = std::make_unique<TileHeads>();
  made->rounding = products;
  made->region = after;
  made->problem = problem;
  for (Value output : after.outputs) {
    made->results.push_back(
        static_cast<unsigned>(llvm::find(kernel.outputs, output) - kernel.outputs.begin()));
    made->outputs.push_back(context.output(made->results.back(), output));
  }
  made->inputs.assign(context.inputs.begin(), context.inputs.end());
  const auto firstMade = static_cast<unsigned>(context.inputs.size());
  made->inputs.resize(firstMade + products.outputs.size());
  if (problem.combined)
    return std::string("matmuls combined element by element");
  made->type = dtype(products.outputs.front());
  for (Value value : products.outputs)
    if (dtype(value) != made->type || byteSize(made->type) != 2 || !isFloat(made->type))
      return std::string("results of the matmuls of other types than one of 16 bits");
  for (const Matmul &matmul : problem.matmuls)
    if (matmul.outputs.size() != 1)
      return std::string("several results of a matmul");
  if (auto reason = build(*made, firstMade, products.outputs, context))
    return *reason;
  auto holdsHeads = [&](int64_t tiles) {
    return llvm::all_of(made->heads, [&](const HeadPart &head) { return tile * tiles % head.width == 0; });
  };
  while (made->tiles <= mostTiles && !holdsHeads(made->tiles))
    ++made->tiles;
  if (made->tiles > mostTiles)
    return std::string("heads that do not divide the columns of a block");
  if (made->tiles > 1)
    if (auto reason = build(*made, firstMade, products.outputs, context))
      return *reason;
  return std::move(made);
}

std::string GemmSource::headEpilogue(const Sums &sums, const TileHeads &heads, body::Code &entry) {
  source.include("swap_ab_heads.cuh");
  body::Functor rounding(source, "Rounding");
  for (size_t index = 0; index < heads.problem.matmuls.size(); ++index)
    EpilogueWriter(heads.rounding, context, heads.problem, rounding, sums, /*handsOut=*/true).write(index);
  source.declare(rounding.text());
  KernelContext own = context;
  own.inputs = heads.inputs;
  own.outputs = heads.outputs;
  own.independent = {};
  const std::string type = body::spelling(heads.type);
  entry.line(
      fmt::format("const auto heads = [&](const BlockPlace &place, const {} *tile, int rank) {{", type));
  entry.line(fmt::format("const {} *columns = tile - place.column;", type));
  for (auto [index, head] : llvm::enumerate(heads.heads)) {
    const row::Part &part = *head.part;
    const auto [config, body] = row::BodyPrinter(heads.region, own, part.graph, part.layout, source,
                                                 "Heads" + std::to_string(index))
                                    .within()
                                    .declare();
    const std::string inner = source.size(head.inner),
                      number = inner == "1" ? fmt::format("row * {} + head", head.heads)
                                            : fmt::format("(row / {0} * {1} + head) * {0} + row % {0}", inner,
                                                          head.heads);
    const std::string condition =
        problem.sideBySide() ? fmt::format("if (place.matmul == {}) ", head.matmul) : "";
    entry.line(fmt::format("{}heads_of_tile<{}, Config, {}>({}, place, {}, {}, {}, rank,", condition, config,
                           head.width, body, head.first, head.heads, source.size(problem.m)));
    entry.line(fmt::format("[&](i64 row, i64 head) {{ return {}; }});", number));
  }
  entry.line("};");
  return fmt::format("head_epilogue<{}>({}, heads)", type, rounding.instance());
}

} // namespace fusion::matmul
