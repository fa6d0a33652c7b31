// The linear_attention schedule: one token after the other where they are few, else in chunks.
#include "codegen/schedule/LinearAttention.h"
#include "codegen/schedule/Schedules.h"

using namespace mlir;

namespace fusion {
namespace linear_attention {

static nn::LinearAttentionOp opOf(const Region &region) {
  for (Operation *op : region.ops)
    if (auto found = dyn_cast<nn::LinearAttentionOp>(op))
      return found;
  return {};
}

Problem::Problem(const Region &region, const KernelContext &context)
    : region(region), context(context), op(opOf(region)) {
  const DimShape &q = context.shape(op.getQ()), &state = context.shape(op.getState());
  batch = q[0], tokens = q[2];
  heads = state[1].value(), keyHeads = context.shape(op.getK())[1].value(), queryHeads = q[1].value();
  resultHeads = std::max(heads, queryHeads);
  queries = heads > 0 ? resultHeads / heads : 1;
  depth = state[2].value(), valueDepth = state[3].value();
  if (op.getDecay())
    decayWidth = context.shape(op.getDecay())[3].value();
  if (tokens.isStatic())
    leastTokens = mostTokens = tokens.value();
  else if (const SizeRange *range = context.range())
    leastTokens = range->least - 1, mostTokens = std::max(range->most - 1, leastTokens);
}

unsigned Problem::inputOf(Value operand) const {
  return static_cast<unsigned>(llvm::find(region.inputs, operand) - region.inputs.begin());
}

bool Problem::readsVectors(Value operand, int64_t length) const {
  const View &rows = view(operand);
  for (size_t i = 0; i < 3; ++i)
    if (rows.shape[i] != Dim(1) && !rows.strides[i].knownMultipleOf(length))
      return false;
  return rows.strides[3] == Dim(1) && rows.shape[3].knownMultipleOf(length) &&
         rows.offset.knownMultipleOf(length);
}

int64_t Problem::vectorOf(Value operand) const {
  int64_t length = 16 / static_cast<int64_t>(byteSize(dtype(operand)));
  while (length > 1 && !readsVectors(operand, length))
    length /= 2;
  return length;
}

Dim Problem::flops() const {
  const int64_t products = 2 + queries + (nn::LinearAttentionOp(op).getBeta() ? 1 : 0);
  return batch * tokens * Dim(heads * depth * valueDepth * 2 * products);
}

/// After the result only a transpose, then a reshape; the new state leaves as it is.
static std::optional<std::string> layoutRefusal(nn::LinearAttentionOp attention, const Region &region,
                                                const KernelContext &context) {
  Value result = attention.getY();
  bool reshaped = false, transposed = false;
  for (Operation *op : region.ops) {
    if (op == attention || isa<nn::ConstantOp>(op))
      continue;
    const bool isTranspose = isa<nn::TransposeOp>(op);
    if (!(isTranspose && !transposed && !reshaped) && !(isa<nn::ReshapeOp>(op) && !reshaped))
      return (op->getName().getStringRef() + " beside nn.linear_attention").str();
    if (op->getOperand(0) != result)
      return "an operand of " + op->getName().getStringRef().str() + " is not the result of the attention";
    (isTranspose ? transposed : reshaped) = true;
    result = op->getResult(0);
  }
  for (auto [index, output] : llvm::enumerate(region.outputs)) {
    if (output != result && output != attention.getNewState())
      return std::string("the result of nn.linear_attention leaves in more than one order");
    if (!context.output(static_cast<unsigned>(index), output).isContiguous())
      return std::string("a result in place in a larger buffer");
  }
  return std::nullopt;
}

std::optional<std::string> refusal(const Region &region, const KernelContext &context) {
  nn::LinearAttentionOp op = opOf(region);
  if (!op)
    return std::string("there is no nn.linear_attention");
  if (auto reason = layoutRefusal(op, region, context))
    return reason;
  for (Value operand : op->getOperands()) {
    if (!llvm::is_contained(region.inputs, operand))
      return std::string("an operand of nn.linear_attention is computed in the region");
    const DType type = dtype(operand);
    if (type != DType::F32 && type != DType::F16 && type != DType::BF16)
      return "elements of " + std::string(name(type)) + ", not f32, f16 or bf16";
    const DimShape &shape = context.shape(operand);
    for (size_t dim : {size_t(1), size_t(3)})
      if (!shape[dim].isStatic())
        return std::string("a number of heads or a head size of nn.linear_attention is not static");
    if (shape[3].value() < 1 || shape[3].value() > largestHead)
      return "a head size of " + shape[3].str() + ", not 1 to " + std::to_string(largestHead);
  }
  const DimShape &state = context.shape(op.getState());
  if (!state[2].isStatic())
    return std::string("the head size of the keys is not static");
  for (Value operand : {op.getQ(), op.getK(), op.getState()})
    if (context.shape(operand)[1].value() < 1)
      return std::string("there are no heads");
  const Problem problem(region, context);
  if (recurrentBytes(problem) > context.target.sharedBytesPerBlock)
    return "the queries of a token, " + std::to_string(problem.queries) +
           " heads for each state, do not fit in shared memory";
  return std::nullopt;
}

/// By the number of tokens, plus one: there may be none.
static std::vector<SizeRange> ranges(const Problem &problem) {
  if (problem.tokens.isStatic())
    return {};
  const Dim size = problem.tokens + 1;
  if (!isChunked(problem))
    return {{size, 1, 2}, {size, 3, INT64_MAX}};
  return {{size, 1, 2},
          {size, 3, leastChunked},
          {size, leastChunked + 1, leastPrepared},
          {size, leastPrepared + 1, INT64_MAX}};
}

static KernelDraft emit(const Region &region, const KernelContext &context) {
  const Problem problem(region, context);
  return problem.leastTokens >= leastChunked && isChunked(problem) ? emitChunked(problem)
                                                                   : emitRecurrent(problem);
}

/// Two kernels where chunks are prepared, else one.
static std::vector<PlannedAlternative> alternatives(const Region &region, const KernelContext &context,
                                                    const KernelEmitter &emit) {
  std::vector<PlannedAlternative> all;
  auto add = [&](ArrayRef<SizeRange> range) {
    KernelContext within = context;
    within.when = range;
    all.push_back(alternativesFor(range, region, emit).front());
    if (!isPrepared(Problem(region, within)))
      return;
    Region first = region;
    first.outputs.clear();
    auto prepare = [first](const KernelContext &context) { return emitPrepare(Problem(first, context)); };
    auto compute = [region](const KernelContext &context) { return emitPrepared(Problem(region, context)); };
    all.back().kernels = {alternativesFor(range, first, prepare).front().kernels.front(),
                          alternativesFor(range, region, compute).front().kernels.front()};
  };
  for (const SizeRange &range : ranges(Problem(region, context)))
    add(range);
  if (all.empty())
    add({});
  return all;
}

} // namespace linear_attention

namespace {

class LinearAttentionSchedule : public Schedule {
public:
  llvm::StringRef name() const override { return "linear_attention"; }
  bool concerns(const Region &region) const override { return holdsAny<nn::LinearAttentionOp>(region); }

  Result<SchedulePlan> plan(const Region &region, const KernelContext &context) const override {
    if (auto reason = linear_attention::refusal(region, context))
      return refusal(*reason);
    SchedulePlan plan{
        [&region](const KernelContext &context) { return linear_attention::emit(region, context); }};
    plan.batchInvariant = true; // by the number of tokens of a sequence, not by that of sequences
    plan.split = [&region, context, emit = plan.emit] {
      return linear_attention::alternatives(region, context, emit);
    };
    return plan;
  }
};

} // namespace

const Schedule &linearAttentionSchedule() {
  static const LinearAttentionSchedule schedule;
  return schedule;
}

} // namespace fusion
