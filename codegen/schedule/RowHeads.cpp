// Rotary embeddings in row kernels: other columns of the same row, which the thread itself holds where the
// layout allows, and rows in the order in which they lie.
#include "codegen/schedule/RowEmitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

using namespace mlir;

namespace fusion::row {

std::string Emitter::mappedColumn(const ColumnMap &map, const std::string &c) {
  if (map.headSize != 0) {
    const std::string inHead = local("i64", "inHead", fmt::format("(u32)({}) % {}u", c, map.headSize));
    ColumnMap rest = map;
    rest.headSize = 0;
    return fmt::format("({} - {}) + ({})", c, inHead, mappedColumn(rest, inHead));
  }
  const int64_t half = map.half, rotary = 2 * half;
  switch (map.kind) {
  case ColumnMap::Kind::HalfPartner:
    return fmt::format("{0} < {1} ? {0} + {1} : ({0} < {2} ? {0} - {1} : {0})", c, half, rotary);
  case ColumnMap::Kind::NextPartner:
    return fmt::format("{0} < {1} ? {0} ^ 1 : {0}", c, rotary);
  case ColumnMap::Kind::HalfFold:
    return fmt::format("{0} < {1} ? {0} : ({0} < {2} ? {0} - {1} : 0)", c, half, rotary);
  case ColumnMap::Kind::PairFold:
    return fmt::format("{0} < {1} ? {0} / 2 : 0", c, rotary);
  case ColumnMap::Kind::Clamp:
    return fmt::format("{0} < {1} ? {0} : 0", c, rotary);
  }
  llvm_unreachable("all maps handled");
}

// Rows that lie behind each other are neighbours in a block, whatever the order of the dims: the heads of one
// token, also where the tensor has the tokens behind the heads. The larger a dim's stride in what is read,
// the later it changes; strides known only at run time are taken for larger ones.
SmallVector<std::string> Emitter::rowIndices(const DimShape &lead) {
  const bool narrow = !graph.rows.isStatic() || graph.rows.value() < (1ll << 32);
  const Node *source = nullptr;
  if (graph.leads.size() == 1)
    for (const Node &node : graph.nodes)
      if (!source && node.kind == Node::Kind::Load && node.level == Level::Element &&
          node.access.columnDims == 1 && llvm::none_of(llvm::seq<size_t>(0, lead.size()), [&](size_t dim) {
            return lead[dim] != Dim(1) && node.access.view.strides[dim] == Dim(0);
          }))
        source = &node;
  if (!source)
    return writer.delinearize(row, lead, narrow);
  SmallVector<size_t> order(lead.size());
  std::iota(order.begin(), order.end(), 0);
  const DimShape &strides = source->access.view.strides;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto x = strides[a].constant(), y = strides[b].constant();
    return x && y ? *x > *y : !x && y;
  });
  DimShape sorted;
  for (size_t dim : order)
    sorted.push_back(lead[dim]);
  const SmallVector<std::string> found = writer.delinearize(row, sorted, narrow);
  SmallVector<std::string> indices(lead.size());
  for (size_t i = 0; i < order.size(); ++i)
    indices[order[i]] = found[i];
  return indices;
}

/// Whether each of the thread's vectors goes to another one of its own, or to half a one.
bool Emitter::movesChunks(const ColumnMap &map) const {
  if (map.headSize != 0)
    return false;
  if (map.kind == ColumnMap::Kind::PairFold)
    return layout.inRegisters && vectors() && 2 * map.half % layout.vector == 0;
  if (!layout.inRegisters || !vectors())
    return false;
  if (map.kind == ColumnMap::Kind::Clamp)
    return 2 * map.half % layout.stride() == 0;
  return map.half % layout.stride() == 0 &&
         (map.kind == ColumnMap::Kind::HalfPartner || map.kind == ColumnMap::Kind::HalfFold);
}

std::string Emitter::heldChunk(const Position &position, const ColumnMap &map) const {
  if (position.held.empty())
    return "";
  if (map.kind == ColumnMap::Kind::NextPartner || (map.kind == ColumnMap::Kind::PairFold && movesChunks(map)))
    return position.held;
  if (!movesChunks(map))
    return "";
  const std::string &k = position.held;
  const int64_t half = map.half / layout.stride(), rotary = 2 * map.half / layout.stride();
  const bool whole = rotary == layout.chunks;
  switch (map.kind) {
  case ColumnMap::Kind::HalfPartner:
    return whole ? fmt::format("({} + {}) % {}", k, half, rotary)
                 : fmt::format("({0} < {2} ? ({0} + {1}) % {2} : {0})", k, half, rotary);
  case ColumnMap::Kind::HalfFold:
    return whole ? fmt::format("{} % {}", k, half)
                 : fmt::format("({0} < {2} ? {0} % {1} : 0)", k, half, rotary);
  default:
    return whole ? k : fmt::format("({0} < {1} ? {0} : 0)", k, rotary);
  }
}

/// The vectors that a thread holds of what a Load reads: a table of the angles may be shorter than the row.
int64_t Emitter::heldChunks(const Node *load) const {
  const auto fold = folds.find(load);
  if (fold == folds.end() || fold->second.kind == ColumnMap::Kind::PairFold)
    return layout.chunks;
  const int64_t columns =
      fold->second.kind == ColumnMap::Kind::HalfFold ? fold->second.half : 2 * fold->second.half;
  return columns / layout.stride();
}

void Emitter::findFolds() {
  for (const Node &node : graph.nodes) {
    if (node.kind != Node::Kind::Move || node.map.kind == ColumnMap::Kind::HalfPartner ||
        node.map.kind == ColumnMap::Kind::NextPartner || !movesChunks(node.map))
      continue;
    SmallVector<const Node *> pending{node.operands[0]};
    while (!pending.empty()) {
      const Node *operand = pending.pop_back_val();
      if (operand->kind == Node::Kind::Load && operand->level == Level::Element)
        folds[operand] = node.map;
      pending.append(operand->operands.begin(), operand->operands.end());
    }
  }
}

} // namespace fusion::row
