#include "codegen/schedule/AttentionProblem.h"

#include "codegen/schedule/AttentionTiles.h"
#include "ir/dialect/ScaledCodes.h"

using namespace mlir;

namespace fusion::attention {

static Operation *attentionOf(const Region &region) {
  auto found = llvm::find_if(region.ops, [](Operation *op) { return isa<nn::AttentionOp>(op); });
  return found == region.ops.end() ? nullptr : *found;
}

static Stored storedOf(const Region &region, Value operand) {
  auto isInput = [&](Value value) { return llvm::is_contained(region.inputs, value); };
  Stored stored{.tensor = operand, .type = dtype(operand)};
  if (isInput(operand))
    return stored;
  if (const auto joined = nn::matchJoinedColumns(operand)) {
    stored.tensor = joined->first, stored.second = joined->second;
    return stored;
  }
  if (auto dequantize = operand.getDefiningOp<nn::DequantizeOp>()) {
    stored = {.tensor = dequantize.getX(), .scale = dequantize.getScale()};
    stored.byHead = tensorType(dequantize.getScale()).getNumElements() != 1;
  } else if (auto codes = nn::matchScaledCodes(operand)) {
    stored = {codes->codes, codes->scale, codes->byHead, codes->byColumn};
    stored.packed = codes->packed;
  }
  stored.type = dtype(stored.tensor);
  if (isInput(stored.tensor))
    return stored;
  stored.paging = nn::matchPagedKeys(stored.tensor);
  if (!stored.paging)
    return stored;
  stored.tensor = stored.paging->pages;
  nn::PagedKeys &paging = *stored.paging;
  if (Operation *rows = paging.tableOp; rows && isInput(rows->getResult(0))) {
    paging.table = rows->getResult(0);
    paging.sequences = {};
    paging.tableOp = nullptr;
  }
  return stored;
}

/// A sink whose keys and values are put together in the region.
static std::optional<nn::AttentionSink> sinkOf(const Region &region, nn::AttentionOp attention) {
  return llvm::is_contained(region.inputs, attention.getK()) ? std::nullopt
                                                             : nn::matchAttentionSink(attention);
}

/// Keys, values and mask, without those of a sink.
struct Operands {
  Operands(const Region &region, nn::AttentionOp attention)
      : sink(sinkOf(region, attention)), keys(sink ? sink->keys : attention.getK()),
        values(sink ? sink->values : attention.getV()), mask(sink ? sink->mask : attention.getMask()) {}
  std::optional<nn::AttentionSink> sink;
  Value keys, values, mask;
};

/// Of queries that the region puts together.
static std::optional<nn::JoinedColumns> joinedQueriesOf(const Region &region, nn::AttentionOp attention) {
  return llvm::is_contained(region.inputs, attention.getQ()) ? std::nullopt
                                                             : nn::matchJoinedColumns(attention.getQ());
}

/// 1, or more if some sequence has several tokens: which ones have is data; that one has, the numbers of
/// tokens and of sequences tell.
static Dim severalTokens(const Problem &problem) {
  return problem.batch.floorDiv(problem.context.shape(problem.table)[0] + Dim(1)) + Dim(1);
}

/// Of a mask that the region computes.
static std::optional<nn::KeyBounds> boundsOf(const Region &region, Value mask) {
  return !mask || llvm::is_contained(region.inputs, mask) ? std::nullopt : nn::matchKeyBounds(mask);
}

Problem::Problem(const Region &region, const KernelContext &context)
    : region(region), context(context), op(cast<nn::AttentionOp>(attentionOf(region))),
      sink(sinkOf(region, op)), storedKeys(storedOf(region, keysOfOp())),
      storedValues(storedOf(region, valuesOfOp())), joinedQueries(joinedQueriesOf(region, op)) {
  mask = sink ? sink->mask : op.getMask();
  bounds = boundsOf(region, mask);
  if (bounds)
    mask = {};
  const DimShape &q = context.shape(op.getQ()), &k = context.shape(keysOfOp()),
                 &v = context.shape(valuesOfOp());
  batch = q[0], heads = q[1], queries = q[2], kvHeads = k[1], keys = k[2];
  depth = q[3].value(), valueDepth = v[3].value();
  if (const std::optional<nn::PagedKeys> &paging = storedKeys.paging) {
    table = paging->table, sequences = paging->sequences;
    pageSize = paging->rowDim == 0 ? 1 : context.shape(storedKeys.tensor)[paging->rowDim].value();
  }
  group = heads.floorDiv(kvHeads);
  rows = queries * group;
  mostQueries = queries.constant().value_or(INT64_MAX);
  leastQueries = queries.constant().value_or(0);
  pairs = batch * kvHeads;
  if (isLatent())
    pairs = pairs * rows.ceilDiv(latentRows);
  mostPairs = context.batchInvariant ? pairsOfAnyBatch : pairs.constant().value_or(INT64_MAX);
  if (const SizeRange *range = queries.constant() ? nullptr : context.rangeOf(queries)) {
    leastQueries = range->least;
    mostQueries = range->most;
  }
  if (sequences && queries.constant() && !raggedRefusal(*this))
    if (const SizeRange *range = context.rangeOf(severalTokens(*this)))
      isRagged = range->least > 1;
  if (const SizeRange *range = context.rangeOf(pairs); range && !context.batchInvariant)
    mostPairs = std::min(mostPairs, range->most);
}

std::vector<Predicate> predicates(const Problem &problem) {
  const int64_t few = decodeQueries(problem);
  if (problem.leastQueries > few && !problem.isLatent())
    return {};
  const Dim &pairs = problem.pairs;
  const bool byPairs =
      !pairs.constant() && !problem.context.batchInvariant && problem.context.target.has(Feature::Clusters);
  std::vector<Predicate> all;
  auto addFew = [&](const Predicate &when) {
    int64_t next = 1;
    auto add = [&](int64_t most) {
      all.push_back(when);
      all.back().push_back({pairs, next, most});
      next = most + 1;
    };
    SmallVector<int64_t> limits(std::begin(pairLimits), std::end(pairLimits));
    if (problem.isLatent())
      limits = llvm::map_to_vector(latentShares, [](const LatentShare &share) { return share.mostPairs; });
    for (int64_t limit : limits)
      if (byPairs)
        add(limit);
    if (byPairs)
      add(INT64_MAX);
    else if (!when.empty())
      all.push_back(when);
  };
  if (problem.isLatent()) {
    addFew({});
  } else if (!problem.queries.constant()) {
    const int64_t fewest = oneTileQueries(problem);
    if (fewest > 0)
      addFew({{problem.queries, 1, fewest}});
    addFew({{problem.queries, fewest + 1, few}});
    all.push_back({{problem.queries, few + 1, INT64_MAX}});
  } else if (problem.sequences && !raggedRefusal(problem)) {
    const Dim several = severalTokens(problem);
    addFew({{several, 1, 1}});
    all.push_back({{several, 2, INT64_MAX}});
  } else {
    addFew({});
  }
  return all;
}

unsigned Problem::inputOf(Value operand) const {
  return static_cast<unsigned>(llvm::find(region.inputs, operand) - region.inputs.begin());
}

bool Problem::readsScales(const Stored &stored) const {
  constexpr int64_t vector = 4;
  if (!stored.byColumn)
    return true;
  const View &scales = view(stored.scale);
  return scales.offset.knownMultipleOf(vector) &&
         (!stored.byHead || stored.headStride(scales).knownMultipleOf(vector));
}

const View &Problem::view(Value operand) const { return context.inputs[inputOf(operand)]; }

View Problem::storedView(const Stored &stored) const {
  const View &all = view(stored.tensor);
  if (!stored.paging)
    return all;
  const nn::PagedKeys &paging = *stored.paging;
  View rows{all.base,
            all.offset,
            {all.shape[0], all.shape[paging.headDim]},
            {all.strides[0], all.strides[paging.headDim]}};
  rows.shape.push_back(paging.rowDim == 0 ? Dim(1) : all.shape[paging.rowDim]);
  rows.strides.push_back(paging.rowDim == 0 ? Dim(0) : all.strides[paging.rowDim]);
  rows.shape.push_back(all.shape[paging.columnDim]);
  rows.strides.push_back(all.strides[paging.columnDim]);
  return rows;
}

SmallVector<int64_t> Problem::resultOrder() const {
  const auto attention = llvm::find_if(region.ops, llvm::IsaPred<nn::AttentionOp>);
  for (Operation *later : llvm::make_range(attention, region.ops.end()))
    if (auto transpose = dyn_cast<nn::TransposeOp>(later))
      return llvm::to_vector(transpose.getPerm());
  return {0, 1, 2, 3};
}

std::optional<int64_t> Problem::mostRows() const {
  std::optional<int64_t> each = group.constant();
  if (!each || mostQueries == INT64_MAX)
    return std::nullopt;
  return *each * mostQueries;
}

Dim Problem::flops() const { return batch * heads * queries * keys * Dim(2 * (depth + valueDepth)); }

int64_t decodeQueries(const Problem &problem) {
  constexpr int64_t fewRows = 16, fewQueries = 4;
  const std::optional<int64_t> group = problem.group.constant();
  return group && *group > 0 ? std::max(fewRows / *group, fewQueries) : fewQueries;
}

/// The codes that keys or values are made of: what the kernels decode as they read it.
static std::optional<std::string> decodingRefusal(const Region &region, const KernelContext &context,
                                                  nn::AttentionOp attention, Value operand) {
  if (llvm::is_contained(region.inputs, operand))
    return std::nullopt;
  const Stored stored = storedOf(region, operand);
  if (stored.second)
    return llvm::is_contained(region.inputs, stored.tensor) &&
                   llvm::is_contained(region.inputs, stored.second)
               ? std::nullopt
               : std::optional<std::string>("a part of an operand of nn.attention is computed in the region");
  if (!stored.scale) // pages of elements are judged as pages
    return stored.paging ? std::nullopt
                         : std::optional<std::string>("an operand of nn.attention is computed in the region");
  const DType codes = stored.type, decoded = dtype(operand);
  if (codes != DType::F8E4M3 && codes != DType::F8E5M2 && codes != DType::I8 && !stored.packed)
    return "codes of " + std::string(name(codes)) + " in an operand of nn.attention";
  auto dequantize = operand.getDefiningOp<nn::DequantizeOp>();
  if (dequantize && dequantize.getZeroPoint())
    return std::string("codes with a zero point in an operand of nn.attention");
  if (decoded != dtype(attention.getQ()))
    return "codes that become " + std::string(name(decoded)) + ", where the queries are " +
           std::string(name(dtype(attention.getQ())));
  if (dtype(stored.scale) == DType::F64)
    return std::string("a scale of f64");
  if (stored.packed) {
    const auto all = ArrayRef(context.shape(operand)),
               pairs = ArrayRef(context.shape(nn::matchScaledCodes(operand)->codes));
    if (all.drop_back() != pairs.drop_back())
      return std::string("codes of 4 bits under another shape than their bytes");
  }
  for (Value value : {stored.tensor, stored.scale})
    if (!llvm::is_contained(region.inputs, value))
      return std::string(
          "the codes of an operand of nn.attention, or their scale, are computed in the region");
  if (stored.byColumn) {
    const auto input = llvm::find(region.inputs, stored.scale) - region.inputs.begin();
    if (context.inputs[static_cast<size_t>(input)].strides.back() != Dim(1))
      return std::string("scales of columns that do not lie side by side");
  }
  if (!dequantize)
    return std::nullopt;
  auto scale = tensorType(dequantize.getScale());
  const int64_t axis = dequantize.getAxis();
  if (scale.hasStaticShape() && scale.getNumElements() == 1)
    return std::nullopt;
  if (dequantize.getBlockSize() != 0 || scale.getRank() != 1 || (axis != 1 && axis != -3))
    return std::string("codes whose scale is neither one for all nor one for each head");
  return std::nullopt;
}

/// Pages of keys and values that the region gathers: what the kernels read where it lies.
static std::optional<std::string> pagingRefusal(const Region &region, const KernelContext &context,
                                                const Operands &operands) {
  const Stored keys = storedOf(region, operands.keys), values = storedOf(region, operands.values);
  if (!keys.paging && !values.paging)
    return std::nullopt;
  if (!keys.paging || !values.paging)
    return std::string("keys in pages beside values that are not, or the other way round");
  if (keys.paging->table != values.paging->table || keys.paging->sequences != values.paging->sequences)
    return std::string("keys and values of different block tables");
  auto sizeOf = [&](const Stored &stored) {
    return stored.paging->rowDim == 0 ? Dim(1) : context.shape(stored.tensor)[stored.paging->rowDim];
  };
  const Dim pageSize = sizeOf(keys);
  if (!pageSize.constant())
    return "the size of a page, " + pageSize.str() + ", is not static";
  if (sizeOf(values) != pageSize)
    return std::string("pages of keys and values of different sizes");
  Value table = keys.paging->table, sequences = keys.paging->sequences;
  for (Value value : {keys.tensor, values.tensor, table, sequences ? sequences : table})
    if (!llvm::is_contained(region.inputs, value))
      return std::string("pages, or a block table, that are computed in the region");
  const DimShape &shape = context.shape(operands.keys);
  if (context.shape(sequences ? sequences : table)[0] != shape[0] ||
      context.shape(table)[1] * pageSize != shape[2])
    return std::string("a block table of other entries or keys than the attention has");
  return std::nullopt;
}

/// A mask that the region computes is bounds of the keys that each query looks at.
static std::optional<std::string> boundsRefusal(const Region &region, const KernelContext &context,
                                                const Operands &operands) {
  if (!operands.mask || llvm::is_contained(region.inputs, operands.mask))
    return std::nullopt;
  const std::optional<nn::KeyBounds> bounds = boundsOf(region, operands.mask);
  if (!bounds)
    return std::string("a mask computed in the region that is not bounds of the keys");
  for (Value limit : {bounds->above.limit, bounds->below.limit})
    if (limit && !llvm::is_contained(region.inputs, limit))
      return std::string("bounds of the keys that are computed in the region");
  for (Value numbers : bounds->numbers)
    if (context.shape(numbers)[0] != context.shape(operands.keys)[2])
      return std::string("a mask that numbers other keys than there are");
  return std::nullopt;
}

/// Whether the op makes operands of the attention: decodes codes, compares the keys' numbers, puts a sink in
/// front, or joins the columns of queries and keys.
static bool makesOperands(const Region &region, const Operands &operands, Value queries, Operation *op) {
  if (operands.sink && (llvm::is_contained(operands.sink->ops, op) || isa<nn::ConstantOp>(op)))
    return true;
  auto isJoin = [&](Value operand) {
    const auto joined = nn::matchJoinedColumns(operand);
    return joined && joined->op == op;
  };
  if (isJoin(queries) || isJoin(operands.keys))
    return true;
  for (Value operand : {operands.keys, operands.values}) {
    if (isa<nn::DequantizeOp>(op) && operand == op->getResult(0))
      return true;
    if (auto codes = nn::matchScaledCodes(operand);
        codes && (llvm::is_contained(codes->ops, op) || (codes->packed && isa<nn::ConstantOp>(op))))
      return true;
    if (const Stored stored = storedOf(region, operand);
        stored.paging && (llvm::is_contained(stored.paging->ops, op) || stored.paging->tableOp == op))
      return true;
  }
  const std::optional<nn::KeyBounds> bounds = boundsOf(region, operands.mask);
  return bounds && (llvm::is_contained(bounds->ops, op) || isa<nn::ConstantOp>(op));
}

/// Besides the attention and what makes its operands only a transpose, then a reshape: the result in another
/// order of dims.
static std::optional<std::string> layoutRefusal(const Region &region, nn::AttentionOp attention,
                                                const Operands &operands) {
  Value result = attention.getResult();
  bool reshaped = false, transposed = false;
  for (Operation *op : region.ops) {
    if (op == attention.getOperation() || makesOperands(region, operands, attention.getQ(), op))
      continue;
    const bool isTranspose = isa<nn::TransposeOp>(op);
    if (!(isTranspose && !transposed && !reshaped) && !(isa<nn::ReshapeOp>(op) && !reshaped))
      return (op->getName().getStringRef() + " after nn.attention").str();
    if (op->getOperand(0) != result)
      return "an operand of " + op->getName().getStringRef().str() + " is not the result of the attention";
    (isTranspose ? transposed : reshaped) = true;
    result = op->getResult(0);
  }
  if (region.outputs.size() != 1 || region.outputs[0] != result)
    return std::string("the result of nn.attention leaves in more than one order");
  return std::nullopt;
}

std::optional<std::string> refusal(const Region &region, const KernelContext &context) {
  auto op = llvm::dyn_cast_if_present<nn::AttentionOp>(attentionOf(region));
  if (!op)
    return std::string("no nn.attention");
  const Operands operands(region, op);
  for (Value operand : {operands.keys, operands.values})
    if (auto reason = decodingRefusal(region, context, op, operand))
      return reason;
  if (auto reason = pagingRefusal(region, context, operands))
    return reason;
  if (operands.sink && !llvm::is_contained(region.inputs, operands.sink->sink))
    return std::string("a sink that is computed in the region");
  if (auto reason = boundsRefusal(region, context, operands))
    return reason;
  if (auto reason = layoutRefusal(region, op, operands))
    return reason;
  const auto queries = joinedQueriesOf(region, op);
  for (Value value :
       queries ? SmallVector<Value>{queries->first, queries->second} : SmallVector<Value>{op.getQ()})
    if (!llvm::is_contained(region.inputs, value))
      return std::string("an operand of nn.attention is computed in the region");
  bool isLarge = false;
  for (auto [operand, what] : {std::pair(op.getQ(), "queries"), std::pair(op.getV(), "values")}) {
    std::optional<int64_t> size = context.shape(operand).back().constant();
    if (!size || *size < 1)
      return std::string("the head size of the ") + what + " is not static";
    isLarge = isLarge || *size > largestHead;
  }
  if (isLarge)
    return latentRefusal(Problem(region, context));
  if (queries || storedOf(region, operands.keys).second)
    return std::string("queries or keys in two tensors, of heads of " + std::to_string(largestHead) +
                       " columns at most");
  return std::nullopt;
}

} // namespace fusion::attention
