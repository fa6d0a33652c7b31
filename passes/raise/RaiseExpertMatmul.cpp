// matmul(x, w[index]): each row times the matrix of its own expert.
#include "passes/Passes.h"
#include "passes/raise/RoutedRows.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_RAISEEXPERTMATMUL
#include "passes/Passes.h.inc"

namespace raise {
namespace {

constexpr llvm::StringLiteral pattern = "expert_matmul";

/// Matrices that `index` picks out of a table of three dims.
struct PickedMatrices {
  Value table, index;
};

std::optional<PickedMatrices> matchPicked(Value value, Raiser &raiser) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  auto gather = (cast ? cast.getX() : value).getDefiningOp<nn::GatherOp>();
  if (!gather || gather.getAxis() != 0 || tensorType(gather.getX()).getRank() != 3 ||
      tensorType(gather.getIndices()).getRank() == 0)
    return std::nullopt;
  if (!cast)
    return PickedMatrices{gather.getX(), gather.getIndices()};
  if (!isParameter(gather.getX())) // else a cast of more than what is picked
    return std::nullopt;
  raiser.rewriter.setInsertionPoint(gather);
  return PickedMatrices{
      nn::build<nn::CastOp>(raiser.rewriter, cast.getLoc(), gather.getX(), {}, elementType(cast)),
      gather.getIndices()};
}

/// The dims, slots last, that a flat index was made of; [index, 1] where that cannot be seen.
DimShape rowsAndSlots(Value index, Raiser &raiser) {
  const Dim merged = raiser.shapes.of(index).front();
  for (Value value = index;;) {
    DimShape shape = raiser.shapes.of(value);
    if (shape.size() > 1 && !(shape.back() == Dim(1)) && product(shape) == merged)
      return shape;
    Operation *op = value.getDefiningOp();
    if (!op || (!llvm::isa<nn::ReshapeOp>(op) && !op->hasTrait<nn::Pointwise>()))
      break;
    value = op->getOperand(0);
  }
  return {merged, Dim(1)};
}

struct ExpertMatmuls {
  SmallVector<RoutedRows> routings; ///< of those whose rows and slots were merged
};

/// The operand that is not picked, as [rows..., slots or 1, k]; null, with a reason noted, where it has more
/// rows.
Value rowsOf(nn::MatmulOp root, Value x, bool columnLast, const DimShape &lead, RoutedRows &rows, bool flat,
             Raiser &raiser) {
  DimShape shape = raiser.shapes.of(x);
  const size_t rank = shape.size();
  if (rank != lead.size() + 2) {
    noteMiss(root, pattern,
             "operands of rank " + std::to_string(rank) + " and " + std::to_string(lead.size() + 2));
    return {};
  }
  const Dim &count = shape[rank - (columnLast ? 1 : 2)], inner = shape[rank - (columnLast ? 2 : 1)];
  if (!(count == Dim(1))) {
    noteMiss(root, pattern, "each picked matrix multiplies " + count.str() + " rows, not one");
    return {};
  }
  DimShape flatShape(shape.begin(), shape.end() - 2);
  flatShape.push_back(inner);
  const bool oneSlot = !flat && flatShape[lead.size() - 1] == Dim(1);
  for (size_t i = 0; i < lead.size(); ++i)
    if (!(flatShape[i] == lead[i]) && !(oneSlot && i + 1 == lead.size())) {
      noteMiss(root, pattern,
               "the rows " + shapeString(flatShape) + " do not go with an index " + shapeString(lead));
      return {};
    }
  Value apart = flat ? rows.split(rows.shaped(x, flatShape)) : rows.shaped(x, flatShape);
  Value shared = oneSlot ? Value() : rows.ofOneSlot(apart);
  return shared ? shared : apart;
}

void raiseMatmul(nn::MatmulOp root, Raiser &raiser, ExpertMatmuls &found) {
  auto left = matchPicked(root.getA(), raiser),
       right = left ? std::nullopt : matchPicked(root.getB(), raiser);
  if (!left && !right)
    return;
  const PickedMatrices &picked = left ? *left : *right;
  // y = w x with x a column, or y = x w with x a row.
  Value x = left ? root.getB() : root.getA();
  const bool columnLast = left ? !root.getTransposeB() : root.getTransposeA();
  const bool transposeW = left ? !root.getTransposeA() : root.getTransposeB();
  DimShape lead = raiser.shapes.of(picked.index);
  const bool flat = lead.size() == 1;
  RoutedRows rows(flat ? rowsAndSlots(picked.index, raiser) : lead, raiser);
  raiser.rewriter.setInsertionPoint(root);
  Value own = rowsOf(root, x, columnLast, lead, rows, flat, raiser);
  if (!own)
    return;
  Value index = flat ? rows.split(picked.index) : picked.index;
  Value experts = nn::build<nn::ExpertMatmulOp>(
      raiser.rewriter, root.getLoc(), {own, picked.table, index},
      raiser.rewriter.getNamedAttr("transpose_w", raiser.rewriter.getBoolAttr(transposeW)),
      elementType(root));
  DimShape shape = raiser.shapes.of(root);
  raiser.replace(root, nn::buildReshape(raiser.rewriter, root.getLoc(), experts, shape));
  if (flat && llvm::none_of(found.routings,
                            [&](RoutedRows &known) { return known.rowsAndSlots() == rows.rowsAndSlots(); }))
    found.routings.push_back(rows);
}

/// Whether an nn.expert_matmul makes the value, up to views and ops on single elements.
bool comesFromExperts(Value value, int depth = 12) {
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0)
    return false;
  if (llvm::isa<nn::ExpertMatmulOp>(op))
    return true;
  return (op->hasTrait<nn::Pointwise>() || llvm::isa<nn::ReshapeOp, nn::SliceOp>(op)) &&
         llvm::any_of(op->getOperands(), [&](Value operand) { return comesFromExperts(operand, depth - 1); });
}

// Pattern: reshape(merged) to [rows..., slots, ...] -> the same ops on rows and slots that were never merged
void splitAfterExperts(nn::ReshapeOp root, Raiser &raiser, ExpertMatmuls &found) {
  for (RoutedRows &rows : found.routings) {
    DimShape shape = raiser.shapes.of(root);
    const DimShape &apart = rows.rowsAndSlots();
    if (root.getX().getDefiningOp<nn::ReshapeOp>() || shape.size() < apart.size() ||
        !std::equal(apart.begin(), apart.end(), shape.begin()) || !rows.isMerged(root.getX()) ||
        !comesFromExperts(root.getX()))
      continue;
    raiser.rewriter.setInsertionPoint(root);
    Value apartNow = rows.shaped(rows.split(root.getX()), shape);
    if (apartNow.getDefiningOp() == root)
      return;
    apartNow.setType(root.getType());
    raiser.rewriter.replaceOp(root, apartNow);
    return;
  }
}

// Pattern: cast(reduce(cast(x : T))) to T -> reduce(x), which adds in f32 and rounds once
void narrowSum(nn::ReduceOp sum, Raiser &raiser) {
  auto widen = sum.getX().getDefiningOp<nn::CastOp>();
  auto narrow = onlyUserAs<nn::CastOp>(sum);
  if (sum.getKind() != "sum" || !widen || !narrow || !isF32(sum) || !isFloat(widen.getX()) ||
      elementType(widen.getX()) != elementType(narrow) || !comesFromExperts(widen.getX()))
    return;
  raiser.rewriter.setInsertionPoint(narrow);
  replaceByNew(raiser.rewriter, narrow,
               nn::build<nn::ReduceOp>(raiser.rewriter, sum.getLoc(), widen.getX(), sum->getAttrs(),
                                       elementType(narrow)));
}

} // namespace
} // namespace raise

namespace {
struct RaiseExpertMatmul : impl::RaiseExpertMatmulBase<RaiseExpertMatmul> {
  void runOnOperation() override {
    auto raiseAll = [](func::FuncOp function, ShapeTable &shapes) {
      IRRewriter rewriter(function.getContext(), &shapes);
      raise::Raiser raiser{shapes, rewriter};
      Block &block = function.getBody().front();
      raise::ExpertMatmuls experts;
      for (auto root : llvm::to_vector(block.getOps<nn::MatmulOp>()))
        raise::raiseMatmul(root, raiser, experts);
      if (!experts.routings.empty())
        for (auto root : llvm::to_vector(block.getOps<nn::ReshapeOp>()))
          raise::splitAfterExperts(root, raiser, experts);
      for (auto root : llvm::to_vector(block.getOps<nn::ReduceOp>()))
        raise::narrowSum(root, raiser);
      eraseDeadOps(function);
      return success();
    };
    if (failed(forEachFunction(getOperation(), raiseAll)))
      signalPassFailure();
  }
};
} // namespace

} // namespace fusion
