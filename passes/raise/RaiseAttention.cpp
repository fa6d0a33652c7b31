#include "passes/Passes.h"
#include "passes/raise/AttentionMatch.h"
#include "passes/raise/HeadsAfterQueries.h"
#include "passes/raise/LeadingDims.h"
#include "passes/raise/MaskArithmetic.h"
#include "passes/raise/SimplifyAttention.h"
#include "passes/raise/SinkGate.h"
#include "passes/raise/SummedScores.h"
#include "passes/raise/WindowMask.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace fusion {

#define GEN_PASS_DEF_RAISEATTENTION
#include "passes/Passes.h.inc"

namespace raise {
namespace {

constexpr StringLiteral patternName = "attention";

/// What a gate by a sink takes for granted: else the graph has NaN, which no gate of 0 clears.
constexpr StringLiteral everyQuerySeesAKey = "every query sees a key";

/// The matmul of v and the probabilities, past casts, reshapes between batch * heads and batch,
/// heads, swaps of the last two dims, and a guard that turns rows that see no key into zeros.
struct Weighted {
  nn::MatmulOp product;
  bool transposed = false; ///< the probabilities are on the right: vᵀ pᵀ
  bool zeroedNan = false, zeroedMasked = false;
  bool zeroesRows() const { return zeroedNan || zeroedMasked; }
};

/// where(is_nan(p), 0, p), if that and is_nan are the users of p.
nn::WhereOp nanGuard(Value probabilities) {
  nn::WhereOp guard;
  for (Operation *user : probabilities.getUsers()) {
    if (llvm::isa<nn::IsNanOp>(user))
      continue;
    auto where = llvm::dyn_cast<nn::WhereOp>(user);
    auto test = where ? where.getCondition().getDefiningOp<nn::IsNanOp>() : nn::IsNanOp();
    if (!test || test.getX() != probabilities || where.getY() != probabilities ||
        !isConstant(where.getX(), 0) || (guard && guard != where))
      return {};
    guard = where;
  }
  return guard;
}

/// `byKey`: the probabilities have shape [.., keys, queries].
std::optional<Weighted> matchWeighted(Value probabilities, bool byKey, const Scores &scores, Heads &heads,
                                      ShapeTable &shapes, std::string &reason) {
  Weighted found;
  Value value = probabilities;
  if (byKey)
    swapLastTwo(heads);
  while (true) {
    if (auto cast = onlyUserAs<nn::CastOp>(value); cast && isFloat(cast)) {
      value = cast;
      continue;
    }
    if (nn::WhereOp guard = nanGuard(value)) {
      found.zeroedNan = true;
      value = guard;
      continue;
    }
    // The outermost mask hides what the others make of the scores.
    if (!scores.masks.empty() && !found.zeroedMasked && scores.masks[0].byKey == byKey)
      if (Operation *guard = matchMaskGuard(value, scores.masks[0], shapes)) {
        found.zeroedMasked = true;
        value = guard->getResult(0);
        continue;
      }
    if (Value swapped = swappedUser(value, heads, shapes)) {
      byKey = !byKey;
      value = swapped;
      continue;
    }
    auto stacked = scores.stacked;
    if (auto reshape = onlyUserAs<nn::ReshapeOp>(value);
        reshape && (stacked ? beforeStackedReshape(reshape, stacked, shapes)
                            : beforeHeadsReshape(reshape, heads, shapes))) {
      value = reshape;
      continue;
    }
    break;
  }
  if (!value.hasOneUse()) {
    reason = "the probabilities are used " +
             std::to_string(std::distance(value.use_begin(), value.use_end())) + " times";
    return std::nullopt;
  }
  found.product = onlyUserAs<nn::MatmulOp>(value);
  if (!found.product) {
    reason = "the probabilities go to " + onlyUser(value)->getName().getStringRef().str() +
             ", not to an nn.matmul";
    return std::nullopt;
  }
  found.transposed = found.product.getB() == value;
  if ((found.transposed ? !found.product.getTransposeB() : found.product.getTransposeA()) != byKey) {
    reason = "the softmax runs over another axis than the one that the nn.matmul with v sums over";
    return std::nullopt;
  }
  if (byKey)
    swapLastTwo(heads);
  return found;
}

/// The term laid over scores of shape [.., queries, keys].
void layByQuery(MaskTerm &term, Raiser &raiser) {
  DimShape shape = raiser.shapes.of(term.mask);
  if (!std::exchange(term.byKey, false) || shape.empty())
    return;
  if (shape.size() == 1)
    term.mask = nn::buildReshape(raiser.rewriter, term.mask.getLoc(), term.mask, {shape[0], Dim(1)});
  else
    term.mask = buildSwapped(term.mask, raiser);
}

/// x with its last two dims swapped if `transposed`; null stays null.
Value oriented(Value x, bool transposed, Raiser &raiser) {
  return x && transposed ? buildSwapped(x, raiser) : x;
}

/// [n, s, d] as [n, 1, s, d], or as [batch, heads, s, d] if `heads` splits n so; null if it splits another
/// size.
Value withHeadDim(Value x, const Heads &heads, Raiser &raiser) {
  DimShape shape = raiser.shapes.of(x);
  if (shape.size() != 3)
    return x;
  Dim batch = heads ? heads->at(0) : shape[0], count = heads ? heads->at(1) : Dim(1);
  auto merge = x.getDefiningOp<nn::ReshapeOp>();
  DimShape split = {batch, count, shape[1], shape[2]};
  Value whole = x;
  if (!(shape[0] == batch * count)) {
    // The batch has another name where batch and heads are merged.
    split = merge ? raiser.shapes.of(merge.getX()) : DimShape();
    llvm::erase_if(split, [](const Dim &dim) { return dim == Dim(1); });
    if (split.size() != 4 || !(split[0] * split[1] == shape[0]) || !(split[1] == count) ||
        !(split[2] == shape[1]) || !(split[3] == shape[2]))
      return {};
    whole = merge.getX();
  }
  if (merge && raiser.shapes.of(merge.getX()) == split)
    return merge.getX();
  return nn::buildReshape(raiser.rewriter, x.getLoc(), whole, split);
}

/// [batch, heads * queries, d] as [batch, heads, queries, d].
Value stackedApart(Value x, const DimShape &scores, Raiser &raiser) {
  const DimShape shape = {scores[0], scores[1], scores[2], raiser.shapes.of(x).back()};
  if (auto merge = x.getDefiningOp<nn::ReshapeOp>(); merge && raiser.shapes.of(merge.getX()) == shape)
    return merge.getX();
  return nn::buildReshape(raiser.rewriter, x.getLoc(), x, shape);
}

/// The operands of one product as nn.attention wants them. A null key or query has a first dim that does not
/// split; nothing if one has another rank than the product.
std::optional<ScorePart> partOf(const ScoreProduct &product, const Scores &scores, const Heads &heads,
                                Raiser &raiser) {
  nn::MatmulOp matmul = product.matmul;
  const Scaled q = withoutScale(matmul.getA()), k = withoutScale(matmul.getB());
  const int64_t rank = tensorType(matmul).getRank();
  if (tensorType(q.value).getRank() != rank || tensorType(k.value).getRank() != rank)
    return std::nullopt;
  const bool transposedQuery = matmul.getTransposeA();
  auto stacked = scores.stacked;
  if (stacked && scores.headsAfterQueries)
    std::swap((*stacked)[1], (*stacked)[2]);
  ScorePart part{stacked ? stackedApart(oriented(q.value, transposedQuery, raiser), *stacked, raiser)
                         : oriented(withHeadDim(q.value, heads, raiser), transposedQuery, raiser),
                 oriented(withHeadDim(k.value, heads, raiser), !matmul.getTransposeB(), raiser),
                 q.scale * k.scale * product.scale};
  if (scores.headsAfterQueries)
    part.query = withHeadsSwapped(part.query, raiser);
  if (scores.byKey)
    std::swap(part.query, part.key);
  return part;
}

/// Lays the masks over [batch, heads, queries, keys]; false if one has a batch dim that does not split.
bool splitMasks(MutableArrayRef<MaskTerm> terms, const Heads &heads, Raiser &raiser) {
  for (MaskTerm &term : terms) {
    // [1, queries, keys] broadcasts over batch and heads as it is.
    DimShape shape = raiser.shapes.of(term.mask);
    if (!term.onMerged || (heads && !shape.empty() && shape[0] == Dim(1)))
      continue;
    Value split = withHeadDim(term.mask, heads, raiser);
    if (!split)
      return false;
    term.mask = split;
  }
  return true;
}

/// Shapes as nn.attention wants them, or why not. Sizes that are not provably equal are taken as equal, as
/// the matmuls took them; a size of 1 that a matmul would broadcast is refused.
std::string misfit(const DimShape &q, const DimShape &k, const DimShape &v) {
  auto apart = [](const Dim &left, const Dim &right) {
    return !(left == right) && (left == Dim(1) || right == Dim(1) || (left.isStatic() && right.isStatic()));
  };
  if (apart(q[0], k[0]) || apart(q[0], v[0]))
    return "the batch dim of k or v is broadcast";
  if (!(k[1] == v[1]))
    return "k has " + k[1].str() + " heads and v has " + v[1].str();
  if (!(q[1] == k[1]) &&
      !(q[1].isStatic() && k[1].isStatic() && k[1].value() > 0 && q[1].value() % k[1].value() == 0))
    return "the number of heads, " + q[1].str() + ", is not a multiple of " + k[1].str() + " key/value heads";
  if (apart(k[2], v[2]) || apart(q[3], k[3]))
    return "k does not fit q and v";
  return {};
}

void addPattern(SmallVector<NamedAttribute> &attributes, const Pattern &pattern, Builder &builder) {
  if (pattern.causal)
    attributes.push_back(builder.getNamedAttr("causal", builder.getBoolAttr(true)));
  if (pattern.window != 0)
    attributes.push_back(builder.getNamedAttr("window", builder.getI64IntegerAttr(pattern.window)));
}

/// Strips a factor that stands before a reshape of `x`.
Scaled withoutScaleBeforeReshape(Value x, Raiser &raiser) {
  auto reshape = x.getDefiningOp<nn::ReshapeOp>();
  Scaled scaled = reshape ? withoutScale(reshape.getX()) : Scaled{x};
  if (scaled.scale == 1)
    return Scaled{x};
  DimShape shape = raiser.shapes.of(x);
  if (auto inner = scaled.value.getDefiningOp<nn::ReshapeOp>())
    scaled.value = inner.getX();
  if (raiser.shapes.of(scaled.value) != shape)
    scaled.value = nn::buildReshape(raiser.rewriter, x.getLoc(), scaled.value, shape);
  return scaled;
}

/// Windows become heads, each with its own mask; false if the batch does not divide.
bool joinWindows(const Dim &windows, Value &query, Value &key, Value &value, MutableArrayRef<MaskTerm> terms,
                 Raiser &raiser) {
  const Dim heads = raiser.shapes.of(query)[1];
  for (MaskTerm &term : terms)
    if (!(term.mask = maskOfWindowHeads(term.mask, term.ofWindows, windows, heads, raiser)))
      return false;
  for (Value *x : {&query, &key, &value})
    if (!(*x = withWindowHeads(*x, windows, raiser)))
      return false;
  return true;
}

void raiseSoftmax(nn::SoftmaxOp softmax, Raiser &raiser, bool assumeFinite) {
  int64_t rank = tensorType(softmax).getRank(), axis = static_cast<int64_t>(softmax.getAxis());
  if (softmax.getLog())
    return noteMiss(softmax, patternName, "the softmax is the logarithm of one");
  axis = axis < 0 ? axis + rank : axis;
  const bool byKey = axis == rank - 2;
  if (!byKey && axis != rank - 1)
    return noteMiss(softmax, patternName,
                    "the softmax runs over axis " + std::to_string(axis) + ", not one of the last two");
  std::string reason;
  std::optional<Sink> sink = byKey ? std::nullopt : matchSink(softmax, raiser.shapes);
  raiser.rewriter.setInsertionPoint(softmax);
  Value input = byKey ? Value(softmax.getX()) : withoutLargest(softmax.getX());
  auto scores = matchScores(sink ? sink->scores : input, byKey, raiser, reason);
  if (!scores)
    return noteMiss(softmax, patternName, reason);
  Heads heads = scores->heads;
  auto weighted = matchWeighted(sink ? sink->probabilities : Value(softmax), byKey, *scores, heads,
                                raiser.shapes, reason);
  if (!weighted)
    return noteMiss(softmax, patternName, reason);
  nn::MatmulOp root = weighted->product;
  std::optional<SinkGate> gate = sink || byKey ? std::nullopt : matchSinkGate(softmax, root, raiser.shapes);
  std::string assumed = assumptionsOf(scores->masks, weighted->zeroedNan);
  const bool needsKeys = gate && !scores->masks.empty() && !weighted->zeroesRows();
  if (!assumeFinite && (!assumed.empty() || needsKeys))
    return noteMiss(softmax, patternName,
                    "it would take for granted, which --no-assume-finite forbids: " +
                        (assumed.empty() ? everyQuerySeesAKey.str() : assumed));
  Operation *replaced = gate ? gate->product.getOperation() : root.getOperation();
  if (rank < 3)
    return noteMiss(softmax, patternName, "the scores have rank " + std::to_string(rank) + ", not 3 or more");
  if (rank > 4 && (sink || gate))
    return noteMiss(softmax, patternName, "the scores have a sink, and dims ahead of batch and heads");
  if (scores->windows && (sink || gate))
    return noteMiss(softmax, patternName, "the scores of windows have a sink");
  if (scores->stacked && weighted->transposed)
    return noteMiss(softmax, patternName, "the queries of all heads are one dim of a transposed result");
  raiser.rewriter.setInsertionPoint(replaced);
  auto &b = raiser.rewriter;
  Value v = withoutExactCast(weighted->transposed ? root.getA() : root.getB());
  const int64_t rootRank = tensorType(root).getRank();
  SmallVector<ScorePart, 2> parts;
  for (const ScoreProduct &product : scores->products)
    if (auto part = partOf(product, *scores, heads, raiser))
      parts.push_back(*part);
  if (parts.size() != scores->products.size() || tensorType(v).getRank() != rootRank)
    return noteMiss(softmax, patternName, "q, k or v has another rank than the scores");
  Value value = oriented(withHeadDim(v, heads, raiser),
                         weighted->transposed ? !root.getTransposeA() : root.getTransposeB(), raiser);
  SmallVector<Value *, 3> keysAndValues;
  bool splits = static_cast<bool>(value);
  for (ScorePart &part : parts) {
    splits &= part.query && part.key;
    keysAndValues.push_back(&part.key);
  }
  keysAndValues.push_back(&value);
  SmallVector<MaskTerm> terms = scores->masks;
  for (MaskTerm &term : terms)
    layByQuery(term, raiser);
  if (weighted->zeroedMasked) // where a key is kept, those that are not have no weight either way
    terms[0].lowest = -std::numeric_limits<double>::infinity();
  if (rank > 4) {
    const DimShape leading = ArrayRef<Dim>(raiser.shapes.of(parts.front().query)).drop_back(3);
    for (MaskTerm &term : terms)
      term.mask = maskWithOneLeadingDim(term.mask, leading, raiser);
    for (ScorePart &part : parts)
      part.query = withOneLeadingDim(part.query, raiser);
    for (Value *x : keysAndValues)
      *x = withOneLeadingDim(*x, raiser);
  }
  if (!splits || !splitMasks(terms, heads, raiser))
    return noteMiss(softmax, patternName,
                    "the first dim of q, k, v or the mask is not batch * heads, as the scores are reshaped");
  dropRepeats(keysAndValues, raiser);
  for (ScorePart &part : parts) {
    const Scaled bare = withoutScaleBeforeReshape(part.key, raiser);
    part.key = bare.value;
    part.scale *= bare.scale;
  }
  std::optional<ScorePart> joined = parts.front();
  if (parts.size() > 1 && !(joined = joinParts(parts[0], parts[1], value, raiser, reason)))
    return noteMiss(softmax, patternName, reason);
  auto [query, key, scale] = *joined;
  const bool headsAreSwapped = !sink && !gate && !scores->windows && scores->factors.empty() &&
                               hasHeadsAfterQueries(query, key, terms, raiser.shapes);
  if (headsAreSwapped) {
    query = withHeadsSwapped(query, raiser);
    swapHeadsOfMasks(terms, raiser);
  }
  if (std::string why = misfit(raiser.shapes.of(query), raiser.shapes.of(key), raiser.shapes.of(value));
      !why.empty())
    return noteMiss(softmax, patternName, why);
  for (const ScoreFactor &factor : scores->factors)
    query = withScoreFactor(query, factor, raiser);
  if (scores->windows && !joinWindows(*scores->windows, query, key, value, terms, raiser))
    return noteMiss(softmax, patternName, "the batch is not provably a multiple of the windows");
  applyScales(terms, root.getLoc(), raiser);
  Pattern pattern = takePattern(terms, raiser.shapes.of(query)[2], raiser.shapes.of(key)[2], raiser);
  SinkOperands keyed{key, value, buildMask(terms, root.getLoc(), raiser)};
  if (gate) {
    sink = withRank4(gate->sink, raiser);
    if (keyed.mask && needsKeys)
      assumed += (assumed.empty() ? "" : "; ") + everyQuerySeesAKey.str();
  }
  if (sink)
    keyed = putSinkInFront(*sink, keyed, std::exchange(pattern.window, 0), root.getLoc(), raiser);
  SmallVector<Value> operands = {query, keyed.keys, keyed.values};
  if (keyed.mask)
    operands.push_back(keyed.mask);
  SmallVector<NamedAttribute> attributes = {
      b.getNamedAttr("scale", b.getF32FloatAttr(static_cast<float>(scale)))};
  if (scores->softcap != 0)
    attributes.push_back(b.getNamedAttr("softcap", b.getF32FloatAttr(static_cast<float>(scores->softcap))));
  addPattern(attributes, pattern, b);
  if (weighted->zeroesRows() || sink) // what no key has, the sink has
    attributes.push_back(b.getNamedAttr("zero_masked_rows", b.getBoolAttr(true)));
  Value attention = nn::build<nn::AttentionOp>(b, root.getLoc(), operands, attributes, elementType(root));
  if (headsAreSwapped)
    attention = withHeadsSwapped(attention, raiser);
  if (weighted->transposed)
    attention = buildSwapped(attention, raiser);
  if (rootRank != 4 || scores->windows)
    attention = nn::buildReshape(b, root.getLoc(), attention, raiser.shapes.of(root));
  raiser.replace(replaced, attention, std::move(assumed));
}

} // namespace
} // namespace raise

namespace {
struct RaiseAttention : impl::RaiseAttentionBase<RaiseAttention> {
  using RaiseAttentionBase::RaiseAttentionBase;

  void runOnOperation() override {
    auto raiseSoftmax = [this](nn::SoftmaxOp softmax, raise::Raiser &raiser) {
      raise::raiseSoftmax(softmax, raiser, assumeFinite);
    };
    if (failed(raise::forEachRoot<nn::SoftmaxOp>(getOperation(), raiseSoftmax)) ||
        failed(raise::forEachRoot<nn::AttentionOp>(getOperation(), raise::simplifyAttention)))
      signalPassFailure();
  }
};
} // namespace

} // namespace fusion
