#include "passes/Passes.h"

#include "ir/dialect/Build.h"
#include "ir/dialect/Types.h"
#include "passes/ShapeTable.h"

#include <limits>

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_DECOMPOSEATTENTION
#include "passes/Passes.h.inc"

namespace {

/// Builds the ops of one nn.attention in front of it.
class Decomposition {
public:
  Decomposition(nn::AttentionOp op, ShapeTable &shapes, IRRewriter &rewriter)
      : op(op), shapes(shapes), rewriter(rewriter), q(shapes.of(op.getQ())), k(shapes.of(op.getK())),
        v(shapes.of(op.getV())) {}

  /// What takes the place of the result. Null where the heads do not divide.
  Value build() {
    const auto groups = q[1].dividedBy(k[1]);
    if (!groups)
      return {};
    const Dim rows = *groups * q[2]; // the queries of all heads that read one key/value head
    Value scores;
    for (const Product &part : products()) {
      const Value product =
          make<nn::MatmulOp>({shaped(part.queries, {q[0], k[1], rows, part.width}), part.keys},
                             {rewriter.getNamedAttr("transpose_b", rewriter.getBoolAttr(true))}, f32());
      scores = scores ? make<nn::AddOp>({scores, product}) : product;
    }
    scores = masked(capped(times(shaped(scores, {q[0], q[1], q[2], k[2]}), op.getScale().convertToDouble())));
    Value shares =
        make<nn::SoftmaxOp>({scores}, {rewriter.getNamedAttr("axis", rewriter.getI64IntegerAttr(3))});
    if (op.getZeroMaskedRows() && op.getMask())
      shares = withoutEmptyRows(scores, shares);
    shares = make<nn::CastOp>({shares}, {}, elementType(op.getV()));
    Value y =
        make<nn::MatmulOp>({shaped(shares, {q[0], k[1], rows, k[2]}), op.getV()}, {}, elementType(op.getY()));
    return shaped(y, {q[0], q[1], q[2], v[3]});
  }

private:
  template <class Op>
  Value make(ValueRange operands, ArrayRef<NamedAttribute> attributes = {}, Type type = {}) {
    return nn::build<Op>(rewriter, op.getLoc(), operands, attributes,
                         type ? ArrayRef<Type>(type) : ArrayRef<Type>())
        ->getResult(0);
  }

  struct Product {
    Value queries, keys;
    Dim width;
  };
  /// What the scores sum: a product for each part of keys that are concatenated for this op alone, so that
  /// they are not copied. A slice of queries that are concatenated alike is folded to their part.
  SmallVector<Product, 2> products() {
    auto joined = op.getK().getDefiningOp<nn::ConcatOp>();
    const auto axis = joined ? static_cast<int64_t>(joined.getAxis()) : 0;
    if ((axis != 3 && axis != -1) || !joined->hasOneUse())
      return {{op.getQ(), op.getK(), q[3]}};
    SmallVector<Product, 2> found;
    Dim start(0);
    for (Value keys : joined.getParts()) {
      const Dim width = shapes.of(keys)[3];
      found.push_back({nn::buildColumns(rewriter, op.getLoc(), op.getQ(), q, start, width), keys, width});
      start = start + width;
    }
    return found;
  }

  Type f32() { return rewriter.getF32Type(); }
  Value number(Type type, double value) { return nn::buildScalar(rewriter, op.getLoc(), type, value); }
  Value shaped(Value x, ArrayRef<Dim> shape) { return nn::buildReshape(rewriter, op.getLoc(), x, shape); }
  Value times(Value x, double factor) { return make<nn::MulOp>({x, number(f32(), factor)}); }
  Value capped(Value scores) {
    const double cap = op.getSoftcap().convertToDouble();
    return cap > 0 ? times(make<nn::TanhOp>({make<nn::DivOp>({scores, number(f32(), cap)})}), cap) : scores;
  }

  /// `size` integers from `first` on.
  Value count(const Dim &first, const Dim &size) {
    const Type index = rewriter.getI64Type();
    Value start = number(index, 0);
    if (!(first == Dim(0)))
      start = nn::DimConstantOp::create(rewriter, op.getLoc(), RankedTensorType::get({}, index),
                                        nn::dimsToAttr(rewriter.getContext(), {first}));
    return make<nn::IotaOp>({start, number(index, 1)},
                            {rewriter.getNamedAttr("size", nn::dimsToAttr(rewriter.getContext(), {size}))});
  }

  Value masked(Value scores) {
    SmallVector<Value> kept;
    if (Value mask = op.getMask()) {
      if (elementType(mask).isInteger(1))
        kept.push_back(mask);
      else
        scores = make<nn::AddOp>({scores, make<nn::CastOp>({mask}, {}, f32())});
    }
    const auto window = static_cast<int64_t>(op.getWindow());
    if (op.getCausal() || window > 0) {
      const Value keys = count(0, k[2]), queries = shaped(count(k[2] - q[2], q[2]), {q[2], Dim(1)});
      if (op.getCausal())
        kept.push_back(make<nn::LessEqualOp>({keys, queries}));
      if (window > 0)
        kept.push_back(make<nn::GreaterOp>(
            {keys, make<nn::SubOp>({queries, number(rewriter.getI64Type(), static_cast<double>(window))})}));
    }
    for (Value condition : kept)
      scores =
          make<nn::WhereOp>({condition, scores, number(f32(), -std::numeric_limits<double>::infinity())});
    return scores;
  }

  Value withoutEmptyRows(Value scores, Value shares) {
    const NamedAttribute attributes[] = {rewriter.getNamedAttr("kind", rewriter.getStringAttr("max")),
                                         rewriter.getNamedAttr("axes", rewriter.getDenseI64ArrayAttr({3})),
                                         rewriter.getNamedAttr("keepdims", rewriter.getBoolAttr(true))};
    const Value largest = make<nn::ReduceOp>({scores}, attributes);
    const Value isEmpty =
        make<nn::EqualOp>({largest, number(f32(), -std::numeric_limits<double>::infinity())});
    return make<nn::WhereOp>({isEmpty, number(f32(), 0), shares});
  }

  nn::AttentionOp op;
  ShapeTable &shapes;
  IRRewriter &rewriter;
  DimShape q, k, v;
};

struct DecomposeAttention : impl::DecomposeAttentionBase<DecomposeAttention> {
  using Base::Base;
  DecomposeAttention() = default;
  explicit DecomposeAttention(KeepsAttention keeps) : keeps(std::move(keeps)) {}

  void runOnOperation() override {
    auto decompose = [&](func::FuncOp function, ShapeTable &shapes) {
      IRRewriter rewriter(function.getContext(), &shapes);
      SmallVector<nn::AttentionOp> large;
      function.walk([&](nn::AttentionOp op) {
        if (isLarge(shapes.of(op.getQ())[3]) || isLarge(shapes.of(op.getV())[3]))
          large.push_back(op);
      });
      if (keeps)
        llvm::erase_if(large, keeps);
      for (nn::AttentionOp op : large) {
        rewriter.setInsertionPoint(op);
        if (Value y = Decomposition(op, shapes, rewriter).build())
          rewriter.replaceOp(op, y);
      }
      return success();
    };
    if (failed(forEachFunction(getOperation(), decompose)))
      signalPassFailure();
  }

  /// A head of a size that only a run knows may be, as attention among channels has it.
  bool isLarge(const Dim &size) const { return !size.isStatic() || size.value() > largestHead; }

  KeepsAttention keeps;
};

} // namespace

std::unique_ptr<Pass> createDecomposeAttention(KeepsAttention keeps) {
  return std::make_unique<DecomposeAttention>(std::move(keeps));
}

} // namespace fusion
