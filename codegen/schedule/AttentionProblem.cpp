#include "codegen/schedule/AttentionProblem.h"

#include "ir/dialect/ScaledCodes.h"

using namespace mlir;

namespace fusion::attention {

/// Sizes by which kernels are chosen: pairs, and this added for queries that need two tiles of rows, and once
/// more for those that are not few.
static constexpr int64_t manyQueries = int64_t(1) << 40;

static Operation *attentionOf(const Region &region) {
  auto found = llvm::find_if(region.ops, [](Operation *op) { return isa<nn::AttentionOp>(op); });
  return found == region.ops.end() ? nullptr : *found;
}

static Stored storedOf(const Region &region, Value operand) {
  Stored stored{.tensor = operand, .type = dtype(operand)};
  if (llvm::is_contained(region.inputs, operand))
    return stored;
  if (auto dequantize = operand.getDefiningOp<nn::DequantizeOp>()) {
    stored = {.tensor = dequantize.getX(), .scale = dequantize.getScale()};
    stored.byHead = tensorType(dequantize.getScale()).getNumElements() != 1;
  } else if (auto codes = nn::matchScaledCodes(operand)) {
    stored = {codes->codes, codes->scale, codes->byHead, codes->byColumn};
  }
  stored.type = dtype(stored.tensor);
  return stored;
}

/// Of a mask that the region computes.
static std::optional<nn::KeyBounds> boundsOf(const Region &region, nn::AttentionOp attention) {
  Value mask = attention.getMask();
  return !mask || llvm::is_contained(region.inputs, mask) ? std::nullopt : nn::matchKeyBounds(mask);
}

Problem::Problem(const Region &region, const KernelContext &context)
    : region(region), context(context), op(cast<nn::AttentionOp>(attentionOf(region))),
      storedKeys(storedOf(region, op.getK())), storedValues(storedOf(region, op.getV())),
      bounds(boundsOf(region, op)), mask(bounds ? Value() : Value(op.getMask())) {
  const DimShape &q = context.shape(op.getQ()), &k = context.shape(op.getK()), &v = context.shape(op.getV());
  batch = q[0], heads = q[1], queries = q[2], kvHeads = k[1], keys = k[2];
  depth = q[3].value(), valueDepth = v[3].value();
  group = heads.floorDiv(kvHeads);
  rows = queries * group;
  mostQueries = queries.constant().value_or(INT64_MAX);
  leastQueries = queries.constant().value_or(0);
  mostPairs = context.batchInvariant ? pairsOfAnyBatch : (batch * kvHeads).constant().value_or(INT64_MAX);
  const SizeRange *range = context.range;
  if (!range)
    return;
  if (queries.constant()) {
    mostPairs = context.batchInvariant ? pairsOfAnyBatch : range->most;
  } else {
    const int64_t few = decodeQueries(*this), fewest = oneTileQueries(*this);
    const int64_t level = range->most / manyQueries + (fewest == 0 ? 1 : 0);
    leastQueries = level == 0 ? 1 : level == 1 ? fewest + 1 : few + 1;
    mostQueries = level == 0 ? fewest : level == 1 ? few : INT64_MAX;
    if (level < 2)
      mostPairs = std::min(mostPairs, range->most % manyQueries);
  }
}

std::vector<SizeRange> ranges(const Problem &problem) {
  const int64_t few = decodeQueries(problem);
  if (problem.leastQueries > few)
    return {};
  const Dim pairs = problem.batch * problem.kvHeads;
  Dim size = pairs;
  SmallVector<int64_t> levels{few};
  if (int64_t fewest = oneTileQueries(problem); fewest > 0 && !problem.queries.constant())
    levels.insert(levels.begin(), fewest);
  if (!problem.queries.constant()) {
    size = Dim::min(pairs, manyQueries - 1);
    for (int64_t level : levels)
      size = Dim::min(1, problem.queries.floorDiv(level + 1)) * Dim(manyQueries) + size;
  }
  std::vector<SizeRange> ranges;
  int64_t next = 1;
  auto add = [&](int64_t most) {
    ranges.push_back({size, next, most});
    next = most + 1;
  };
  for (size_t level = 0; level < levels.size(); ++level) {
    const int64_t before = static_cast<int64_t>(level) * manyQueries;
    if (!pairs.constant() && !problem.context.batchInvariant && problem.context.target.has(Feature::Clusters))
      for (int64_t limit : pairLimits)
        add(before + limit);
    if (!problem.queries.constant())
      add(before + manyQueries - 1);
  }
  if (ranges.empty())
    return {};
  add(INT64_MAX);
  return ranges;
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
  if (!stored.scale)
    return std::string("an operand of nn.attention is computed in the region");
  const DType codes = stored.type, decoded = dtype(operand);
  if (codes != DType::F8E4M3 && codes != DType::F8E5M2 && codes != DType::I8)
    return "codes of " + std::string(name(codes)) + " in an operand of nn.attention";
  auto dequantize = operand.getDefiningOp<nn::DequantizeOp>();
  if (dequantize && dequantize.getZeroPoint())
    return std::string("codes with a zero point in an operand of nn.attention");
  if (decoded != dtype(attention.getQ()))
    return "codes that become " + std::string(name(decoded)) + ", where the queries are " +
           std::string(name(dtype(attention.getQ())));
  if (dtype(stored.scale) == DType::F64)
    return std::string("a scale of f64");
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

/// A mask that the region computes is bounds of the keys that each query looks at.
static std::optional<std::string> boundsRefusal(const Region &region, const KernelContext &context,
                                                nn::AttentionOp attention) {
  Value mask = attention.getMask();
  if (!mask || llvm::is_contained(region.inputs, mask))
    return std::nullopt;
  const std::optional<nn::KeyBounds> bounds = boundsOf(region, attention);
  if (!bounds)
    return std::string("a mask computed in the region that is not bounds of the keys");
  for (Value limit : {bounds->above.limit, bounds->below.limit})
    if (limit && !llvm::is_contained(region.inputs, limit))
      return std::string("bounds of the keys that are computed in the region");
  for (Value numbers : bounds->numbers)
    if (context.shape(numbers)[0] != context.shape(attention.getK())[2])
      return std::string("a mask that numbers other keys than there are");
  return std::nullopt;
}

/// Whether the op makes operands of the attention: decodes codes, or compares the keys' numbers.
static bool makesOperands(const Region &region, nn::AttentionOp attention, Operation *op) {
  if (isa<nn::DequantizeOp>(op))
    return llvm::is_contained(attention->getOperands(), op->getResult(0));
  for (Value operand : {attention.getK(), attention.getV()})
    if (auto codes = nn::matchScaledCodes(operand); codes && llvm::is_contained(codes->ops, op))
      return true;
  const std::optional<nn::KeyBounds> bounds = boundsOf(region, attention);
  return bounds && (llvm::is_contained(bounds->ops, op) || isa<nn::ConstantOp>(op));
}

/// Besides the attention and what makes its operands only a transpose, then a reshape: the result in another
/// order of dims.
static std::optional<std::string> layoutRefusal(const Region &region, nn::AttentionOp attention) {
  Value result = attention.getResult();
  bool reshaped = false, transposed = false;
  for (Operation *op : region.ops) {
    if (op == attention.getOperation() || makesOperands(region, attention, op))
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
  for (Value operand : {op.getK(), op.getV()})
    if (auto reason = decodingRefusal(region, context, op, operand))
      return reason;
  if (auto reason = boundsRefusal(region, context, op))
    return reason;
  if (auto reason = layoutRefusal(region, op))
    return reason;
  if (!llvm::is_contained(region.inputs, op.getQ()))
    return std::string("an operand of nn.attention is computed in the region");
  for (auto [operand, what] : {std::pair(op.getQ(), "queries"), std::pair(op.getV(), "values")}) {
    std::optional<int64_t> size = context.shape(operand).back().constant();
    if (!size || *size < 1)
      return std::string("the head size of the ") + what + " is not static";
    if (*size > largestHead)
      return "a head size of " + std::to_string(*size) + ", more than " + std::to_string(largestHead);
  }
  return std::nullopt;
}

} // namespace fusion::attention
