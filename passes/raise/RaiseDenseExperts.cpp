// Every expert on every row, weighted with zero where the router did not choose it.
#include "passes/Passes.h"
#include "passes/raise/StackExperts.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_RAISEDENSEEXPERTS
#include "passes/Passes.h.inc"

namespace raise {
namespace {

constexpr llvm::StringLiteral pattern = "expert_matmul";

/// expert's output * the weight that the router gives it.
struct Term {
  int64_t expert;
  Value weights; ///< [rows..., slots]
  Value cast;    ///< of the weight after it was picked; null if there is none
  Value output;  ///< [rows..., n]
  Value product;
};

/// The number of experts that the index of a top_k can name.
std::optional<int64_t> expertsOf(Value index) {
  while (auto cast = index.getDefiningOp<nn::CastOp>())
    index = cast.getX();
  auto topK = index.getDefiningOp<nn::TopKOp>();
  if (!topK)
    return std::nullopt;
  auto type = tensorType(topK.getX());
  auto axis = static_cast<int64_t>(topK.getAxis());
  axis += axis < 0 ? type.getRank() : 0;
  if (axis + 1 != type.getRank() || type.isDynamicDim(static_cast<unsigned>(axis)))
    return std::nullopt;
  return type.getDimSize(static_cast<unsigned>(axis));
}

/// weights * cast(equal), or where(equal, weights, 0): the product's weights and the op.
std::pair<Value, Operation *> matchMasked(nn::EqualOp equal) {
  if (auto where = onlyUserAs<nn::WhereOp>(equal))
    return where.getOperand(0) == equal && isConstant(where.getOperand(2), 0)
               ? std::pair<Value, Operation *>(where.getOperand(1), where)
               : std::pair<Value, Operation *>();
  auto mask = onlyUserAs<nn::CastOp>(equal);
  auto masked = mask ? onlyUserAs<nn::MulOp>(mask) : nn::MulOp();
  return {masked ? otherOperand(masked, mask) : Value(), masked};
}

std::optional<Term> matchTerm(nn::EqualOp equal, Value index, int64_t expert, ShapeTable &shapes) {
  auto [weights, masked] = matchMasked(equal);
  if (!weights || !shapes.same(weights, index) || !isFloat(weights))
    return std::nullopt;
  Term term{expert, weights, {}, {}, {}};
  auto sum = onlyUserAs<nn::ReduceOp>(masked->getResult(0));
  const int64_t last = tensorType(index).getRank() - 1;
  if (!sum || sum.getKind() != "sum" || !sum.getKeepdims() || sum.getAxes().size() != 1 ||
      (sum.getAxes()[0] != last && sum.getAxes()[0] != -1))
    return std::nullopt;
  Value gate = sum;
  if (auto cast = onlyUserAs<nn::CastOp>(gate))
    gate = term.cast = cast;
  auto product = onlyUserAs<nn::MulOp>(gate);
  term.product = product ? product.getY() : Value();
  term.output = product ? otherOperand(product, gate) : Value();
  if (!term.output || !shapes.same(term.output, term.product) ||
      tensorType(term.output).getRank() != tensorType(index).getRank())
    return std::nullopt;
  return term;
}

/// Whether `value` adds up `terms` and nothing else; counts them.
bool addsTerms(Value value, const llvm::DenseSet<Value> &terms, size_t &count) {
  if (terms.contains(value)) {
    ++count;
    return true;
  }
  if (isConstant(value, 0))
    return true;
  auto add = value.getDefiningOp<nn::AddOp>();
  return add && addsTerms(add.getLhs(), terms, count) && addsTerms(add.getRhs(), terms, count);
}

/// The op that adds up all of the terms; null if there is none.
Operation *sumOf(ArrayRef<Term> terms) {
  llvm::DenseSet<Value> all;
  for (const Term &term : terms)
    all.insert(term.product);
  for (Operation *op = terms.front().product.getDefiningOp(); op;) {
    op = onlyUser(op->getResult(0));
    size_t count = 0;
    if (!llvm::isa_and_nonnull<nn::AddOp>(op) || !addsTerms(op->getResult(0), all, count))
      return nullptr;
    if (count == terms.size())
      return op;
  }
  return nullptr;
}

struct DenseExperts {
  Raiser &raiser;
  bool assumeFinite;

  void raise(Value index, ArrayRef<Term> terms, Operation *first);

private:
  Value build(Value index, ArrayRef<Term> terms, ExpertBodies &bodies);
};

void DenseExperts::raise(Value index, ArrayRef<Term> terms, Operation *first) {
  const auto experts = expertsOf(index);
  if (!experts)
    return noteMiss(first, pattern,
                    "the experts compared with are not those of an nn.top_k along the last dim");
  SmallVector<Term> ordered(static_cast<size_t>(*experts));
  SmallVector<bool> present(ordered.size(), false);
  for (const Term &term : terms) {
    if (term.expert < 0 || term.expert >= *experts || present[static_cast<size_t>(term.expert)])
      return noteMiss(first, pattern,
                      "expert " + std::to_string(term.expert) + " is there twice or is none of " +
                          std::to_string(*experts));
    present[static_cast<size_t>(term.expert)] = true;
    ordered[static_cast<size_t>(term.expert)] = term;
  }
  for (auto [expert, there] : llvm::enumerate(present))
    if (!there)
      return noteMiss(first, pattern,
                      "expert " + std::to_string(expert) + " of " + std::to_string(*experts) +
                          " has no weighted output of this form");
  Operation *root = sumOf(ordered);
  if (!root)
    return noteMiss(first, pattern, "the weighted outputs of the experts are not added up by themselves");
  for (const Term &term : ordered)
    if (term.weights != ordered.front().weights || bool(term.cast) != bool(ordered.front().cast) ||
        elementType(term.product) != elementType(ordered.front().product))
      return noteMiss(root, pattern, "the experts have different routing weights");
  if (!assumeFinite)
    return noteMiss(root, pattern,
                    "every expert runs on every row: leaving out those of weight 0 takes what they compute "
                    "for finite, which --no-assume-finite forbids");
  raiser.rewriter.setInsertionPoint(root);
  ExpertBodies bodies(index, raiser);
  Value built = build(index, ordered, bodies);
  if (!built)
    return noteMiss(root, pattern, bodies.reason());
  noteRaised(root, pattern,
             "experts of weight 0 are left out: takes what they compute for finite. The others are added "
             "up in f32 in the order of the slots and rounded once, not one after another");
  replaceByNew(raiser.rewriter, root, built);
}

// Σ over experts of output_e * weight_e -> Σ over slots of output[index] * weight
Value DenseExperts::build(Value index, ArrayRef<Term> terms, ExpertBodies &bodies) {
  SmallVector<Value> outputs;
  for (const Term &term : terms)
    outputs.push_back(term.output);
  Value routed = bodies.routed(outputs);
  if (!routed)
    return {};
  auto &rewriter = raiser.rewriter;
  const Term &first = terms.front();
  Location location = first.product.getLoc();
  Value weights = first.weights;
  if (first.cast)
    weights = nn::build<nn::CastOp>(rewriter, location, weights, {}, elementType(first.cast));
  DimShape column = raiser.shapes.of(weights);
  const auto slots = static_cast<int64_t>(column.size()) - 1;
  column.push_back(Dim(1));
  weights = nn::buildReshape(rewriter, location, weights, column);
  Value weighted = nn::build<nn::MulOp>(rewriter, location, {routed, weights});
  return nn::build<nn::ReduceOp>(rewriter, location, weighted,
                                 {rewriter.getNamedAttr("kind", rewriter.getStringAttr("sum")),
                                  rewriter.getNamedAttr("axes", rewriter.getDenseI64ArrayAttr(slots)),
                                  rewriter.getNamedAttr("keepdims", rewriter.getBoolAttr(false))},
                                 elementType(weighted));
}

} // namespace
} // namespace raise

namespace {
struct RaiseDenseExperts : impl::RaiseDenseExpertsBase<RaiseDenseExperts> {
  using RaiseDenseExpertsBase::RaiseDenseExpertsBase;

  void runOnOperation() override {
    auto raiseAll = [this](func::FuncOp function, ShapeTable &shapes) {
      IRRewriter rewriter(function.getContext(), &shapes);
      raise::Raiser raiser{shapes, rewriter};
      raiseIn(function, raiser);
      eraseDeadOps(function);
      return success();
    };
    if (failed(forEachFunction(getOperation(), raiseAll)))
      signalPassFailure();
  }

  void raiseIn(func::FuncOp function, raise::Raiser &raiser) {
    struct Found {
      SmallVector<raise::Term> terms;
      Operation *first = nullptr;
    };
    llvm::MapVector<Value, Found> byIndex;
    for (auto equal : function.getBody().front().getOps<nn::EqualOp>()) {
      auto expert = constantInteger(equal.getRhs());
      if (!expert || tensorType(equal.getRhs()).getNumElements() != 1 ||
          tensorType(equal.getLhs()).getRank() == 0)
        continue;
      if (auto term = raise::matchTerm(equal, equal.getLhs(), *expert, raiser.shapes)) {
        Found &found = byIndex[equal.getLhs()];
        found.terms.push_back(*term);
        found.first = found.first ? found.first : equal.getOperation();
      }
    }
    raise::DenseExperts experts{raiser, assumeFinite};
    for (auto &[index, found] : byIndex)
      experts.raise(index, found.terms, found.first);
  }
};
} // namespace

} // namespace fusion
