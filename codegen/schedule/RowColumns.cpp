// Rotary embeddings in row kernels: other columns of the same row, which the thread itself holds where the
// layout allows, and rows in the order in which they lie.
#include "codegen/schedule/RowBody.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

using namespace mlir;

namespace fusion::row {

std::string BodyPrinter::mappedColumn(const ColumnMap &map, const std::string &c) {
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

// Rows that lie one after the other are neighbours in a block, whatever the order of the dims: the heads of
// one token, also where the tensor has the tokens after the heads. The larger a dim's stride in what is read,
// the later it changes; strides known only at run time are taken for larger ones.
SmallVector<scalar::Value> BodyPrinter::rowIndices(const DimShape &outer) {
  const scalar::Value row = places.input("index", DType::I64, scalar::Level::Row);
  const bool narrow = !graph.rows.isStatic() || graph.rows.value() < (1ll << 32);
  const Node *source = nullptr;
  if (graph.outerDims.size() == 1 && !graph.rowMajor)
    for (const Node &node : graph.nodes)
      if (!source && node.kind == Node::Kind::Load && node.level == Level::Element &&
          node.access.columnDims == 1 && llvm::none_of(llvm::seq<size_t>(0, outer.size()), [&](size_t dim) {
            return outer[dim] != Dim(1) && node.access.view.strides[dim] == Dim(0);
          }))
        source = &node;
  if (!source)
    return writer.delinearize(places, row, outer, narrow);
  SmallVector<size_t> order(outer.size());
  std::iota(order.begin(), order.end(), 0);
  const DimShape &strides = source->access.view.strides;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto x = strides[a].constant(), y = strides[b].constant();
    return x && y ? *x > *y : !x && y;
  });
  DimShape sorted;
  for (size_t dim : order)
    sorted.push_back(outer[dim]);
  const SmallVector<scalar::Value> found = writer.delinearize(places, row, sorted, narrow);
  SmallVector<scalar::Value> indices(outer.size());
  for (size_t i = 0; i < order.size(); ++i)
    indices[order[i]] = found[i];
  return indices;
}

/// Whether each of the thread's vectors goes to another one of its own, or to half a one.
bool BodyPrinter::movesChunks(const ColumnMap &map) const {
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

std::string BodyPrinter::heldChunk(const Position &position, const ColumnMap &map) const {
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
int64_t BodyPrinter::heldChunks(const Node *load) const {
  const auto fold = folds.find(load);
  if (fold == folds.end() || fold->second.kind == ColumnMap::Kind::PairFold)
    return layout.chunks;
  const int64_t columns =
      fold->second.kind == ColumnMap::Kind::HalfFold ? fold->second.half : 2 * fold->second.half;
  return columns / layout.stride();
}

void BodyPrinter::findFolds() {
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

std::string BodyPrinter::columnOffset(const Access &access, const std::string &column) {
  const View &view = access.view;
  const size_t leading = view.shape.size() - access.columnDims;
  scalar::Graph sums;
  const scalar::Value from = sums.input(column, DType::I64, scalar::Level::Element);
  const DimShape dims(view.shape.begin() + static_cast<ptrdiff_t>(leading), view.shape.end());
  SmallVector<scalar::Value> index{sums.div(from, sums.index(access.divisors.back()))};
  if (access.columnDims > 1)
    index = writer.delinearize(sums, from, dims, graph.width.isStatic() && graph.width.value() < (1ll << 32));
  scalar::Value sum = sums.index(0);
  for (size_t i = 0; i < access.columnDims; ++i)
    if (const Dim &stride = view.strides[leading + i]; !(stride == Dim(0)))
      sum = sums.add(sum, sums.mul(index[i], writer.size(sums, stride)));
  return sums.isInteger(sum, 0) ? "0" : writer.print(sums, sum);
}

} // namespace fusion::row
