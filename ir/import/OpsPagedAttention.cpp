// Each token is an entry of one query: its keys are gathered by its sequence's row of the block table, up to
// its position. New keys and values are scattered to their slots first.
#include "ir/import/OpsPagedAttention.h"

#include "ir/import/Graph.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

// Inputs of PagedAttention. The last one only bounds lengths for launches.
enum : unsigned {
  keyInput = 1,
  valueInput,
  keyCacheInput,
  valueCacheInput,
  cumulativeInput,
  pastInput,
  tableInput,
  cosInput,
  sinInput,
  slotsInput,
  sinkInput,
  queryNormInput,
  keyNormInput,
  keyScaleInput,
  valueScaleInput,
};

class PagedAttention {
public:
  explicit PagedAttention(NodeImporter &node) : n(node) {}

  void import() {
    if (!readForm() || !splitInputs())
      return;
    findTokens();
    normHeads();
    rotateHeads();
    CodedCache keys(n, 'k', keyCacheInput, keyScaleInput);
    const Value keyPages = written(keyCacheInput, encoded(keys, 'k', k));
    const Value allKeys = keys.decoded(gathered(keyPages));
    n.result(1, keyPages);
    Value allValues;
    if (isLatent) {
      if (!n.failed())
        allValues = keys.decoded(gathered(n.slice(keyPages, 3, 0, valueSize)));
    } else {
      CodedCache values(n, 'v', valueCacheInput, valueScaleInput);
      const Value valuePages = written(valueCacheInput, encoded(values, 'v', v));
      allValues = values.decoded(gathered(valuePages));
      n.result(2, valuePages);
    }
    AttentionSettings settings;
    settings.scale = n.floatAttribute("scale", 0);
    settings.softcap = n.floatAttribute("softcap", 0);
    if (n.failed())
      return;
    const DimShape heads = n.shapeOf(q);
    const Value queries = n.reshape(q, {tokens, heads[1], 1, heads[2]});
    const Value y = n.has(sinkInput) ? attendWithSink(n, queries, allKeys, allValues, visible(),
                                                      n.operand(sinkInput), settings)
                                     : attend(n, queries, allKeys, allValues, visible(), settings);
    if (!n.failed())
      n.result(0, n.reshape(y, {tokens, n.shapeOf(y)[1] * n.shapeOf(y)[3]}));
  }

private:
  /// What the attributes and the presence of inputs and outputs say.
  bool readForm() {
    const std::string layout = n.stringAttribute("kv_cache_layout", "SEPARATE");
    isLatent = layout == "LATENT";
    if (!isLatent && layout != "SEPARATE")
      n.fail("kv_cache_layout is '" + layout + "', neither SEPARATE nor LATENT");
    for (auto [attribute, input] :
         {std::pair("k_cache_dtype", keyCacheInput), std::pair("v_cache_dtype", valueCacheInput)})
      checkType(attribute, input);
    if (n.has(queryNormInput) != n.has(keyNormInput))
      n.fail("q_norm_weight and k_norm_weight come together");
    if (isLatent == n.has(valueCacheInput))
      n.fail(isLatent ? "a value_cache beside the layout LATENT" : "needs value_cache");
    if (!n.wants(1) || (!isLatent && !n.wants(2)))
      n.fail("the caches are not among the outputs, where what is written to them could be seen");
    return !n.failed();
  }

  /// A cache of 4 bits lies in bytes; other types are those of the tensor.
  void checkType(const char *attribute, unsigned input) {
    const std::string given = n.stringAttribute(attribute, "");
    const bool isPacked = given == "int4" || given == "float4e2m1";
    if (isPacked)
      n.fail("a key/value cache of " + given + " is not supported");
    if (given.empty() || isPacked || !n.has(input) || n.failed())
      return;
    const DType type = *dtypeOf(n.inputType(input));
    const bool agrees = given == "float16"        ? type == DType::F16
                        : given == "bfloat16"     ? type == DType::BF16
                        : given == "int8"         ? type == DType::I8
                        : given == "float8e4m3fn" ? type == DType::F8E4M3
                                                  : false;
    if (!agrees)
      n.fail(std::string(attribute) + " is '" + given + "', and the cache holds " + std::string(name(type)));
  }

  bool splitInputs() {
    const int64_t heads = n.intAttribute("num_heads", 0), keyHeads = n.intAttribute("kv_num_heads", 0);
    if (heads <= 0 || keyHeads <= 0 || n.rank(0) != 2 || n.rank(keyCacheInput) != 4 ||
        n.rank(tableInput) != 2)
      n.fail(
          "needs num_heads, kv_num_heads, a query of rank 2, caches of rank 4 and a block table of rank 2");
    if (isLatent && keyHeads != 1)
      n.fail("kv_num_heads is not 1 with the layout LATENT");
    if (n.failed())
      return false;
    const DimShape cache = n.shape(keyCacheInput);
    tokens = n.shape(0)[0];
    sequences = n.shape(tableInput)[0];
    pageSize = cache[1];
    valueSize = n.intAttribute("v_head_size", 0);
    auto packed = n.shape(0)[1].dividedBy(heads + 2 * keyHeads);
    Value queries = n.operand(0), keys, values;
    if (n.has(keyInput)) {
      keys = n.operand(keyInput);
      values = isLatent ? Value() : n.operand(valueInput);
    } else if (packed && !isLatent) {
      queries = n.slice(n.operand(0), 1, 0, *packed * heads);
      keys = n.slice(n.operand(0), 1, *packed * heads, *packed * keyHeads);
      values = n.slice(n.operand(0), 1, *packed * (heads + keyHeads), *packed * keyHeads);
    } else {
      n.fail("a packed query of " + shapeString(n.shape(0)) + " does not divide into heads");
    }
    q = split(queries, heads);
    k = split(keys, keyHeads);
    v = isLatent ? Value() : split(values, keyHeads);
    if (valueSize != 0 && !isLatent && !n.failed() && !(n.shapeOf(v)[2] == Dim(valueSize)))
      n.fail("v_head_size other than head_size needs the layout LATENT");
    if (isLatent && valueSize == 0 && !n.failed())
      valueSize = n.shapeOf(k)[2].constant().value_or(0);
    if (isLatent && (valueSize <= 0 || !n.hasAttribute("scale")))
      n.fail("the layout LATENT needs v_head_size and scale");
    return !n.failed();
  }

  /// [tokens, heads * size] as [tokens, heads, size].
  Value split(Value x, int64_t heads) {
    if (n.failed())
      return {};
    auto size = n.rankOf(x) == 2 ? n.shapeOf(x)[1].dividedBy(heads) : std::nullopt;
    if (!size)
      n.fail("a tensor of " + shapeString(n.shapeOf(x)) + " does not divide into " + Twine(heads) + " heads");
    return size ? n.reshape(x, {tokens, heads, *size}) : Value();
  }

  Value number(const Dim &value) { return n.dimConstant(value, {}, n.i64Type()); }
  Value integers(unsigned input) { return n.cast(n.operand(input), n.i64Type()); }
  Value entriesOf(Value x, Value indices) { return n.build<nn::GatherOp>({x, indices}, n.i64("axis", 0)); }

  /// The sequence and the position of each token; tokens behind the last sequence's belong to it, too.
  void findTokens() {
    if (n.failed())
      return;
    n.owner().learn(n.shape(cumulativeInput)[0], sequences + 1);
    n.owner().learn(n.shape(pastInput)[0], sequences);
    const Value cumulative = integers(cumulativeInput), numbers = countFrom(n, 0, tokens);
    const Value begins = n.slice(cumulative, 0, 0, sequences), ends = n.slice(cumulative, 0, 1, sequences);
    const Value isBehind = n.build<nn::GreaterEqualOp>({n.reshape(numbers, {tokens, 1}), ends});
    sequence = n.reduce(n.cast(isBehind, n.i64Type()), "sum", {1}, /*keepdims=*/false);
    const Value past = integers(pastInput);
    positions = n.add(entriesOf(past, sequence), n.sub(numbers, entriesOf(begins, sequence)));
    exists = n.build<nn::LessOp>({sequence, number(sequences)});
    const bool isCausal = n.intAttribute("is_causal", 1) != 0;
    lastKeys = isCausal
                   ? positions
                   : n.sub(entriesOf(n.add(past, n.sub(ends, begins)), sequence), n.scalar(n.i64Type(), 1));
  }

  void normHeads() {
    const double eps = n.floatAttribute("qk_norm_epsilon", 1e-6);
    if (!n.has(queryNormInput) || n.failed())
      return;
    auto norm = [&](Value x, unsigned weight) {
      return n.build<nn::RmsNormOp>({x, n.operand(weight)},
                                    {n.f32("eps", eps), n.type("scale_in", n.f32Type())});
    };
    q = norm(q, queryNormInput);
    k = norm(k, keyNormInput);
  }

  void rotateHeads() {
    const bool interleaved = n.intAttribute("rotary_interleaved", 0) != 0;
    const int64_t offset = n.intAttribute("rotary_offset", 0);
    if (n.intAttribute("do_rotary", 0) == 0 || n.failed())
      return;
    if (!n.has(cosInput) || !n.has(sinInput))
      return n.fail("do_rotary needs cos_cache and sin_cache");
    auto rows = [&](unsigned input) {
      Value taken = entriesOf(n.operand(input), positions);
      return n.failed() ? Value() : n.reshape(taken, {tokens, 1, n.shapeOf(taken)[1]});
    };
    const Value cos = rows(cosInput), sin = rows(sinInput);
    for (Value *x : {&q, &k}) {
      if (n.failed())
        return;
      if (offset == 0) {
        *x = rotate(n, *x, cos, sin, interleaved);
        continue;
      }
      const Value turned = n.slice(*x, 2, offset, n.shapeOf(*x)[2] - Dim(offset));
      *x = n.concat({n.slice(*x, 2, 0, offset), rotate(n, turned, cos, sin, interleaved)}, 2);
    }
  }

  /// [tokens, 1]: the row of all pages where each token's key and value go; one that does not exist where
  /// they go nowhere.
  Value slots() {
    if (places || n.failed())
      return places;
    const Value none = number(n.shape(keyCacheInput)[0] * pageSize), size = number(pageSize),
                zero = n.scalar(n.i64Type(), 0);
    Value slot, isValid;
    if (n.has(slotsInput)) {
      slot = integers(slotsInput);
      isValid = n.build<nn::GreaterEqualOp>({slot, zero});
    } else {
      const Value column = n.div(positions, size);
      const Value address =
          n.concat({n.reshape(sequence, {tokens, 1}), n.reshape(column, {tokens, 1})}, 1);
      const Value isMapped = n.build<nn::LessOp>({column, number(n.shape(tableInput)[1])});
      const Value page = n.build<nn::GatherNdOp>({integers(tableInput), address}, n.i64("batch_dims", 0));
      slot = n.add(n.mul(page, size), n.sub(positions, n.mul(column, size)));
      isValid = both(n, both(n, exists, isMapped), n.build<nn::GreaterEqualOp>({page, zero}));
    }
    return places = n.reshape(n.build<nn::WhereOp>({isValid, slot, none}), {tokens, 1});
  }

  /// As the cache holds it: [tokens, heads, size].
  Value encoded(CodedCache &cache, char which, Value x) {
    const std::string kind = n.stringAttribute(std::string(1, which) + "_quant_type", "NONE");
    if (kind != "PER_CHANNEL" || n.failed())
      return cache.encoded(x);
    const DimShape shape = n.shapeOf(x); // scales are [heads, 1, size]
    return n.reshape(cache.encoded(n.reshape(x, {shape[0], shape[1], 1, shape[2]})), shape);
  }

  /// The pages with the new tokens' rows, [tokens, heads, size].
  Value written(unsigned cache, Value fresh) {
    const Value addresses = slots();
    if (n.failed())
      return {};
    const DimShape shape = n.shape(cache);
    const Value rows = n.reshape(n.operand(cache), {shape[0] * shape[1], shape[2], shape[3]});
    return n.reshape(n.build<nn::ScatterNdOp>({rows, addresses, fresh}), shape);
  }

  /// The pages of each token's sequence: [tokens, heads, keys, size].
  Value gathered(Value pages) {
    if (n.failed())
      return {};
    if (!rows)
      rows = entriesOf(n.operand(tableInput), sequence);
    Value all = entriesOf(pages, rows);
    if (n.failed())
      return {};
    const DimShape shape = n.shapeOf(all);
    return n.transpose(n.reshape(all, {tokens, shape[1] * shape[2], shape[3], shape[4]}), {0, 2, 1, 3});
  }

  /// Which keys each token sees: [tokens, 1, 1, keys].
  Value visible() {
    const int64_t window = n.intAttribute("local_window_size", -1);
    if (n.failed())
      return {};
    const Value keys = countFrom(n, 0, n.shape(tableInput)[1] * pageSize);
    auto limit = [&](Value x) { return n.reshape(x, {tokens, 1, 1, 1}); };
    Value kept = n.build<nn::LessEqualOp>({keys, limit(lastKeys)});
    if (window > 0) {
      const Value oldest = n.sub(positions, n.scalar(n.i64Type(), static_cast<double>(window)));
      kept = both(n, kept, n.build<nn::GreaterOp>({keys, limit(oldest)}));
    }
    return kept;
  }

  NodeImporter &n;
  bool isLatent = false;
  int64_t valueSize = 0;
  Dim tokens, sequences, pageSize;
  Value q, k, v; ///< [tokens, heads, size]
  Value sequence, positions, exists, lastKeys; ///< [tokens]
  Value places, rows;
};

} // namespace

void pagedAttention(NodeImporter &node) { PagedAttention(node).import(); }

} // namespace fusion::onnx
