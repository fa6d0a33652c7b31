// com.microsoft GatedDeltaNet, which keeps its state value by value, and the gates and the gated norm that
// stand around linear attention.
#include "ir/import/OpsRagged.h"
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

#include <optional>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// decay_scale * Softplus(a + dt_bias) and Sigmoid(b), in f32 and rounded once.
void linearAttentionGate(NodeImporter &n) {
  enum : unsigned { aInput, biasInput, scaleInput, bInput };
  const Type f32 = n.f32Type(), type = n.inputType(aInput);
  const Value sum = n.add(n.cast(n.operand(aInput), f32), n.cast(n.operand(biasInput), f32));
  const Value decay = n.mul(n.build<nn::SoftplusOp>(sum), n.cast(n.operand(scaleInput), f32));
  n.result(0, n.cast(decay, type));
  if (!n.wants(1))
    return;
  if (!n.has(bInput))
    return n.fail("output 1 needs b (input 3)");
  n.result(1, n.cast(n.build<nn::SigmoidOp>(n.cast(n.operand(bInput), f32)), type));
}

/// The norm of each group of as many elements as `scale` has, times the gate: in f32 and rounded once.
void gatedRmsNorm(NodeImporter &n) {
  enum : unsigned { xInput, scaleInput, gateInput };
  const std::string name = n.stringAttribute("activation", "silu");
  if (name != "silu" && name != "swish" && name != "sigmoid")
    return n.fail("activation '" + name + "' is none of silu, swish and sigmoid");
  const Type f32 = n.f32Type();
  const DimShape whole = n.shape(xInput), scale = n.shape(scaleInput);
  if (n.failed())
    return;
  if (whole.empty() || scale.size() != 1 || scale[0] == Dim(0))
    return n.fail("scale of " + shapeString(scale) + " is no vector");
  const auto groups = n.owner().resolve(whole.back()).dividedBy(n.owner().resolve(scale[0]));
  if (!groups)
    return n.fail("the last dim of " + shapeString(whole) + " does not divide into groups of " +
                  scale[0].str());
  DimShape split = whole;
  split.back() = *groups;
  split.push_back(scale[0]);
  const bool isSplit = *groups != Dim(1);
  const Value x = isSplit ? n.reshape(n.operand(xInput), split) : n.operand(xInput);
  const Value gate = n.cast(isSplit ? n.reshape(n.operand(gateInput), split) : n.operand(gateInput), f32);
  const NamedAttribute attributes[] = {n.f32("eps", n.floatAttribute("epsilon", 1e-5)),
                                       n.type("scale_in", f32)};
  const Value normed = n.build<nn::RmsNormOp>({x, n.operand(scaleInput)}, attributes, f32);
  const Value factor = name == "sigmoid" ? n.build<nn::SigmoidOp>(gate) : n.build<nn::SiluOp>(gate);
  const Value y = n.cast(n.mul(normed, factor), n.inputType(xInput));
  n.result(0, isSplit ? n.reshape(y, whole) : y);
}

enum : unsigned {
  queryInput,
  keyInput,
  valueInput,
  lengthsInput,
  decayInput,
  betaInput,
  stateInput,
  logInput,
  biasInput
};

/// The op has tokens before heads and a state of values by keys; nn.linear_attention the other way round.
class DeltaNet {
public:
  explicit DeltaNet(NodeImporter &node) : n(node) {}

  void import() {
    const std::string rule = n.stringAttribute("update_rule", "gated_delta");
    decays = rule == "gated" || rule == "gated_delta";
    corrects = rule == "delta" || rule == "gated_delta";
    n.ignore({"chunk_size"}); // how, not what
    if (!decays && !corrects && rule != "linear")
      return n.fail("update_rule '" + rule + "' is none of linear, gated, delta and gated_delta");
    if (decays != n.has(decayInput) || corrects != n.has(betaInput))
      return n.fail("decay (input 4) and beta (input 5) are not what update_rule '" + rule + "' takes");
    if (n.intAttribute("state_update_capacity", 0) != 0 || n.wants(2))
      return n.fail("state_update_capacity is not supported: only the state behind the last token is kept");
    if (n.has(stateInput) && n.rank(stateInput) != 4)
      return n.fail("initial_state of " + shapeString(n.shape(stateInput)) + " has not four dims");
    if (n.failed() || !operands())
      return;
    Value decay = decays ? gate() : Value(), beta = corrects ? rate() : Value();
    if (n.intAttribute("qk_l2_norm", 0) != 0) {
      q = unit(q);
      k = unit(k);
    }
    if (ragged && !n.failed()) { // places without a token leave the state as it is
      isToken = n.reshape(ragged->isToken(), {batch, 1, tokens, 1});
      k = ofTokens(k);
      v = ofTokens(v);
      decay = decay ? ofTokens(decay) : decay;
      beta = beta ? ofTokens(beta) : beta;
    }
    double scale = n.floatAttribute("scale", 0);
    if (scale == 0)
      scale = defaultScale(n, q);
    if (n.failed())
      return;
    const DimShape values = n.shapeOf(v);
    const DimShape zeros = {values[0], values[1], n.shapeOf(q)[3], values[3]};
    const Value past = n.has(stateInput) ? n.transpose(n.operand(stateInput), {0, 1, 3, 2})
                                         : n.expand(n.scalar(n.f32Type(), 0), zeros);
    SmallVector<Value> operands = {q, k, v, past};
    if (decay)
      operands.push_back(decay);
    if (beta)
      operands.push_back(beta);
    const int32_t segments[] = {1, 1, 1, 1, decays, corrects};
    const NamedAttribute attributes[] = {
        n.f32("scale", scale),
        n.builder().getNamedAttr("operandSegmentSizes", n.builder().getDenseI32ArrayAttr(segments))};
    const auto results = n.create(nn::LinearAttentionOp::getOperationName(), operands, attributes,
                                  {n.inputType(queryInput), NodeImporter::typeOf(past)});
    if (n.failed())
      return;
    const Value y = n.transpose(results[0], {0, 2, 1, 3});
    const DimShape shape = n.shapeOf(y);
    n.result(0, ragged     ? ragged->packed(y)
                : isRagged ? n.reshape(y, {shape[0] * shape[1], shape[2], shape[3]})
                           : y);
    n.result(1, n.transpose(results[1], {0, 1, 3, 2}));
  }

private:
  NodeImporter &n;
  bool decays = false, corrects = false;
  bool isRagged = false; ///< tokens of all sequences are one dim
  Value q, k, v;         ///< [batch, heads, tokens, size]
  Dim batch, tokens;
  std::optional<RaggedTokens> ragged; ///< of sequences of different length
  Value isToken;

  Value ofTokens(Value x) {
    if (n.failed())
      return {};
    return n.build<nn::WhereOp>({isToken, x, n.scalar(NodeImporter::typeOf(x), 0)});
  }

  /// `tail` behind batch and tokens.
  Value withTokens(Value x, ArrayRef<Dim> tail) {
    if (ragged) {
      DimShape rows = {tokens};
      rows.insert(rows.end(), tail.begin(), tail.end());
      return ragged->padded(n.reshape(x, rows));
    }
    DimShape shape = {batch, tokens};
    shape.insert(shape.end(), tail.begin(), tail.end());
    return n.reshape(x, shape);
  }
  Value byHeads(Value x) { return n.transpose(x, {0, 2, 1, 3}); }

  bool operands() {
    const bool isPacked = !n.has(keyInput) && !n.has(valueInput);
    const DimShape query = n.shape(queryInput);
    if (n.has(keyInput) != n.has(valueInput))
      return no("key and value are given both or neither");
    const size_t leading = query.size() - (isPacked ? 1 : 2);
    if (query.size() < (isPacked ? 2u : 3u) || leading > 2)
      return no("query of " + shapeString(query) + " is neither [tokens, …] nor [batch, tokens, …]");
    isRagged = leading == 1;
    if (isRagged && !n.has(stateInput))
      return no("needs initial_state (input 6), which says how many sequences there are");
    batch = n.owner().resolve(isRagged ? n.shape(stateInput)[0] : query[0]);
    tokens = n.owner().resolve(query[leading - 1]);
    if (n.has(lengthsInput) && !isRagged)
      return no("cu_seqlens (input 3) beside a batch");
    if (n.has(lengthsInput)) {
      ragged.emplace(n, lengthsInput, batch, tokens);
    } else if (isRagged) {
      const auto each = tokens.dividedBy(batch);
      if (!each)
        return no(tokens.str() + " tokens do not divide into " + batch.str() + " sequences");
      tokens = *each;
    }
    return isPacked ? unpack(query.back()) : separate();
  }

  bool separate() {
    for (const auto &[input, target] : {std::pair(queryInput, &q), {keyInput, &k}, {valueInput, &v}}) {
      const DimShape shape = n.shape(input);
      if (shape.size() != n.shape(queryInput).size())
        return no("query, key and value have not the same rank");
      *target = byHeads(withTokens(n.operand(input), {shape[shape.size() - 2], shape.back()}));
    }
    return !n.failed();
  }

  /// Queries, keys and values of one token side by side.
  bool unpack(const Dim &width) {
    if (!n.has(stateInput))
      return no("packed queries, keys and values need initial_state (input 6)");
    const DimShape state = n.shape(stateInput);
    const Dim heads = n.owner().resolve(state[1]), valueSize = n.owner().resolve(state[2]),
              size = n.owner().resolve(state[3]), valueWidth = heads * valueSize;
    const auto keyHeads =
        size == Dim(0) ? std::nullopt : n.owner().resolve(width - valueWidth).dividedBy(size * Dim(2));
    if (!keyHeads)
      return no("packed queries, keys and values of " + width.str() + " do not fit a state of " +
                shapeString(state));
    const Dim keyWidth = *keyHeads * size;
    const Value all = withTokens(n.operand(queryInput), {width});
    q = byHeads(withTokens(n.slice(all, 2, Dim(0), keyWidth), {*keyHeads, size}));
    k = byHeads(withTokens(n.slice(all, 2, keyWidth, keyWidth), {*keyHeads, size}));
    v = byHeads(withTokens(n.slice(all, 2, keyWidth * Dim(2), valueWidth), {heads, valueSize}));
    return !n.failed();
  }

  /// The state's decay, [batch, heads, tokens, 1 or size], in f32.
  Value gate() {
    const std::string kind = n.stringAttribute("gate_activation", "none");
    const double bound = n.floatAttribute("gate_lower_bound", -5);
    const DimShape given = n.shape(decayInput);
    const bool byKey = given.size() == (isRagged ? 3u : 4u);
    const Dim heads = n.shapeOf(v)[1], width = byKey ? n.shapeOf(q)[3] : Dim(1);
    Value x = withTokens(n.cast(n.operand(decayInput), n.f32Type()), {heads, width});
    if (kind != "none") {
      const bool isSoftplus = kind == "softplus" || kind == "qwen";
      if (!isSoftplus && kind != "sigmoid" && kind != "kda")
        return fail("gate_activation '" + kind + "' is none of none, softplus, qwen, sigmoid and kda");
      if (!n.has(logInput) || !n.has(biasInput))
        return fail("gate_activation '" + kind + "' needs a_log and dt_bias (inputs 7 and 8)");
      const auto each = product(n.shape(biasInput)).dividedBy(heads);
      if (!each || (*each != Dim(1) && *each != width))
        return fail("dt_bias of " + shapeString(n.shape(biasInput)) + " does not fit a decay of " +
                    shapeString(given));
      x = n.add(x, n.reshape(n.operand(biasInput), {heads, *each}));
      const Value rate = n.build<nn::ExpOp>(n.reshape(n.operand(logInput), {heads, 1}));
      x = isSoftplus ? n.mul(n.build<nn::NegOp>(rate), n.build<nn::SoftplusOp>(x))
                     : n.mul(n.build<nn::SigmoidOp>(n.mul(rate, x)), n.scalar(n.f32Type(), bound));
    }
    return byHeads(x);
  }

  /// The update rate, [batch, heads, tokens, 1], in f32.
  Value rate() {
    const std::string kind = n.stringAttribute("beta_activation", "none");
    if (kind != "none" && kind != "sigmoid")
      return fail("beta_activation '" + kind + "' is neither none nor sigmoid");
    const Value x = withTokens(n.cast(n.operand(betaInput), n.f32Type()), {n.shapeOf(v)[1], 1});
    return byHeads(kind == "none" ? x : n.build<nn::SigmoidOp>(x));
  }

  /// Each head's vector divided by its length, in f32; runtimes add this to the sum of squares.
  Value unit(Value x) {
    const Value wide = n.cast(x, n.f32Type());
    const Value sum = n.reduce(n.build<nn::SquareOp>(wide), "sum", {3});
    return n.mul(wide, n.build<nn::RsqrtOp>(n.add(sum, n.scalar(n.f32Type(), 1e-12))));
  }

  bool no(const Twine &reason) {
    n.fail(reason);
    return false;
  }
  Value fail(const Twine &reason) {
    n.fail(reason);
    return {};
  }
};

} // namespace

void registerGatedDeltaNet(HandlerTable &table) {
  table.add("com.microsoft", "LinearAttentionGate", 3, 4, linearAttentionGate);
  table.add("com.microsoft", "GatedRMSNorm", 3, 3, gatedRmsNorm);
  table.add("com.microsoft", "VarlenCausalConvWithState", 3, 8, varlenCausalConvolution);
  table.add("com.microsoft", "GatedDeltaNet", 1, 11, [](NodeImporter &node) { DeltaNet(node).import(); });
}

} // namespace fusion::onnx
