#include "ir/dialect/PagedKeys.h"

#include "ir/dialect/Types.h"

using namespace mlir;

namespace fusion::nn {

namespace {

/// Dims of what was gathered: entries, pages of an entry, then dims 1, 2, … of the pages.
enum : unsigned { entries, pagesOfEntry, firstOfPage };

/// Which of them each dim of a value is made of, the outer ones first.
using Sources = SmallVector<SmallVector<unsigned, 2>>;

bool isAlongRows(GatherOp gather) {
  const auto axis = static_cast<int64_t>(gather.getAxis());
  return axis == 0 || axis == -tensorType(gather.getX()).getRank();
}

/// Pattern: the reshape of [.., pages of an entry, rows of a page, ..] to [.., keys, ..]
bool joinPages(ReshapeOp reshape, Sources &sources) {
  const ArrayRef<int64_t> from = tensorType(reshape.getX()).getShape(),
                          to = tensorType(reshape.getY()).getShape();
  if (to.size() + 1 != from.size())
    return false;
  for (size_t at = 0; at + 1 < from.size(); ++at) {
    if (sources[at].size() != 1 || sources[at][0] != pagesOfEntry)
      continue;
    if (from.take_front(at) != to.take_front(at) || from.drop_front(at + 2) != to.drop_front(at + 1))
      return false;
    sources[at].append(sources[at + 1]);
    sources.erase(sources.begin() + at + 1);
    return true;
  }
  return false;
}

} // namespace

std::optional<PagedKeys> matchPagedKeys(Value elements) {
  SmallVector<Operation *> views;
  Value value = elements;
  while (llvm::isa_and_nonnull<TransposeOp, ReshapeOp>(value.getDefiningOp())) {
    views.push_back(value.getDefiningOp());
    value = value.getDefiningOp()->getOperand(0);
  }
  auto gather = value.getDefiningOp<GatherOp>();
  if (!gather || !isAlongRows(gather) || tensorType(gather.getIndices()).getRank() != 2)
    return std::nullopt;
  const int64_t rank = tensorType(gather.getX()).getRank();
  if (rank != 3 && rank != 4)
    return std::nullopt;
  Sources sources;
  for (unsigned dim = 0; dim < static_cast<unsigned>(rank) + 1; ++dim)
    sources.push_back({dim});
  bool isJoined = rank == 3;
  for (Operation *op : llvm::reverse(views)) {
    if (auto transpose = llvm::dyn_cast<TransposeOp>(op)) {
      Sources moved;
      for (int64_t from : transpose.getPerm())
        moved.push_back(sources[static_cast<size_t>(from)]);
      sources = std::move(moved);
    } else if (isJoined || !joinPages(llvm::cast<ReshapeOp>(op), sources)) {
      return std::nullopt;
    } else {
      isJoined = true;
    }
  }
  if (!isJoined || sources.size() != 4)
    return std::nullopt;
  const auto &keys = sources[2];
  if (sources[0] != SmallVector<unsigned, 2>{entries} || keys[0] != pagesOfEntry ||
      keys.size() != static_cast<size_t>(rank) - 2 || sources[1].size() != 1 || sources[3].size() != 1)
    return std::nullopt;
  auto dimOfPages = [](unsigned source) { return source - firstOfPage + 1; };
  PagedKeys found;
  found.pages = gather.getX();
  found.table = gather.getIndices();
  found.headDim = dimOfPages(sources[1][0]);
  found.columnDim = dimOfPages(sources[3][0]);
  found.rowDim = keys.size() == 2 ? dimOfPages(keys[1]) : 0;
  found.ops.push_back(gather);
  found.ops.append(views.rbegin(), views.rend());
  if (auto rows = found.table.getDefiningOp<GatherOp>();
      rows && isAlongRows(rows) && tensorType(rows.getX()).getRank() == 2 &&
      tensorType(rows.getIndices()).getRank() == 1 && rows->getBlock() == gather->getBlock()) {
    found.table = rows.getX();
    found.sequences = rows.getIndices();
    found.tableOp = rows;
  }
  return found;
}

} // namespace fusion::nn
