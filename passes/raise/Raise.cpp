#include "passes/raise/Raise.h"

using namespace mlir;

namespace fusion::raise {

void Raiser::replace(Operation *root, Value built, std::string assumes) {
  Operation *named = built.getDefiningOp();
  while (llvm::isa<nn::ReshapeOp, nn::TransposeOp>(named))
    named = named->getOperand(0).getDefiningOp();
  noteRaised(root, named->getName().stripDialect(), std::move(assumes));
  replaceByNew(rewriter, root, built);
}

std::optional<Offset> matchAddConstant(Value value) {
  auto add = value.getDefiningOp<nn::AddOp>();
  if (!add)
    return std::nullopt;
  if (auto constant = constantScalar(add.getRhs()))
    return Offset{add.getLhs(), *constant};
  if (auto constant = constantScalar(add.getLhs()))
    return Offset{add.getRhs(), *constant};
  return std::nullopt;
}

bool isRowOf(Value value, Value like, ShapeTable &shapes) {
  DimShape row = shapes.of(value), shape = shapes.of(like);
  if (row.empty() || shape.empty() || row.size() > shape.size() || !(row.back() == shape.back()))
    return false;
  return std::all_of(row.begin(), row.end() - 1, [](const Dim &dim) { return dim == Dim(1); });
}

Value asRow(Value value, Raiser &raiser) {
  DimShape shape = raiser.shapes.of(value);
  if (shape.size() == 1)
    return value;
  return nn::buildReshape(raiser.rewriter, value.getLoc(), value, shape.back());
}

bool isLastDimMean(nn::ReduceOp reduce) {
  int64_t rank = tensorType(reduce.getX()).getRank();
  return reduce.getKind() == "mean" && reduce.getKeepdims() && reduce.getAxes().size() == 1 &&
         (reduce.getAxes()[0] == -1 || reduce.getAxes()[0] == rank - 1);
}

Value matchCentred(Value value) {
  auto sub = value.getDefiningOp<nn::SubOp>();
  auto mean = sub ? sub.getRhs().getDefiningOp<nn::ReduceOp>() : nn::ReduceOp();
  return mean && isLastDimMean(mean) && mean.getX() == sub.getLhs() ? Value(sub.getLhs()) : Value();
}

std::optional<LastDimSlice> matchLastDimSlice(Value value, ShapeTable &shapes) {
  auto slice = value.getDefiningOp<nn::SliceOp>();
  if (!slice)
    return std::nullopt;
  DimShape starts = nn::dimsFromAttr(slice.getStarts()), sizes = nn::dimsFromAttr(slice.getSizes());
  DimShape from = shapes.of(slice.getX());
  if (from.empty() || !starts.back().isStatic() || !sizes.back().isStatic())
    return std::nullopt;
  for (size_t i = 0; i + 1 < from.size(); ++i)
    if (!(starts[i] == Dim(0)) || !(sizes[i] == from[i]) || slice.getSteps()[i] != 1)
      return std::nullopt;
  return LastDimSlice{slice.getX(), starts.back().value(), sizes.back().value(), slice.getSteps().back()};
}

std::optional<std::pair<Value, Value>> matchLastDimPair(Value value) {
  auto concat = value.getDefiningOp<nn::ConcatOp>();
  if (!concat || concat.getParts().size() != 2)
    return std::nullopt;
  int64_t axis = static_cast<int64_t>(concat.getAxis());
  if (axis != -1 && axis != tensorType(value).getRank() - 1)
    return std::nullopt;
  return std::pair<Value, Value>(concat.getParts()[0], concat.getParts()[1]);
}

std::string producerName(Value value) {
  Operation *op = value.getDefiningOp();
  return op ? op->getName().getStringRef().str() : "an argument";
}

std::string typeName(Value value) {
  std::string text;
  llvm::raw_string_ostream(text) << elementType(value);
  return text;
}

} // namespace fusion::raise
