// Control flow without jumps: branches that are decided at import or selected from, loops that are unrolled.
#include "ir/import/Known.h"
#include "ir/import/OpsShared.h"
#include "ir/import/Subgraph.h"

#include "ir/dialect/SymbolicShapes.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Loops of more steps than this are not unrolled.
constexpr int64_t mostSteps = 64;
/// A branch of more nodes than this is not run for a result that may not be wanted.
constexpr int mostSelectedNodes = 64;

/// Why the nodes of a branch shall not run for nothing; empty if they may.
std::string costOf(const proto::GraphProto &graph) {
  if (graph.node_size() > mostSelectedNodes)
    return "has " + std::to_string(graph.node_size()) + " nodes";
  for (const auto &node : graph.node()) {
    const StringRef op = node.op_type();
    if (op.contains("MatMul") || op.contains("Gemm") || op.contains("Attention") || op.contains("Conv") ||
        op.contains("Reduce") || op == "If" || op == "Loop" || op == "Scan" || op == "AllReduce" ||
        op == "AllGather")
      return "has " + describeNode(node);
  }
  return {};
}

/// An integer of rank 0 that is told by sizes.
std::optional<Dim> sizeOf(Value value) {
  if (auto cast = value.getDefiningOp<nn::CastOp>(); cast && llvm::isa<IntegerType>(elementType(cast.getX())))
    return sizeOf(cast.getX());
  if (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
    return sizeOf(reshape.getX());
  if (auto dims = value.getDefiningOp<nn::DimConstantOp>())
    if (DimShape values = nn::dimsFromAttr(dims.getValues()); values.size() == 1)
      return values[0];
  if (auto integer = constantInteger(value))
    return Dim(*integer);
  return std::nullopt;
}

/// 1 where the condition holds and 0 elsewhere, if sizes tell.
std::optional<Dim> asDim(Value condition) {
  Operation *op = condition.getDefiningOp();
  if (auto reshape = llvm::dyn_cast_or_null<nn::ReshapeOp>(op))
    return asDim(reshape.getX());
  if (!op || op->getNumOperands() != 2)
    return std::nullopt;
  auto left = sizeOf(op->getOperand(0)), right = sizeOf(op->getOperand(1));
  if (!left || !right)
    return std::nullopt;
  auto isPositive = [](const Dim &dim) { return Dim::min(Dim(1), Dim::max(Dim(0), dim)); };
  if (llvm::isa<nn::GreaterOp>(op))
    return isPositive(*left - *right);
  if (llvm::isa<nn::LessOp>(op))
    return isPositive(*right - *left);
  if (llvm::isa<nn::GreaterEqualOp>(op))
    return isPositive(*left - *right + Dim(1));
  if (llvm::isa<nn::LessEqualOp>(op))
    return isPositive(*right - *left + Dim(1));
  return std::nullopt;
}

/// x with copies of 0 behind it, up to `shape`.
Value filledUp(NodeImporter &n, Value x, const DimShape &shape) {
  DimShape low(shape.size(), Dim(0)), high;
  for (auto [to, from] : llvm::zip(shape, n.shapeOf(x)))
    high.push_back(to - from);
  if (llvm::all_of(high, [](const Dim &dim) { return dim == Dim(0); }))
    return x;
  return n.build<nn::PadOp>({x, n.scalar(NodeImporter::typeOf(x), 0)},
                            {n.dims("low", low), n.dims("high", high)});
}

/// The argument of the graph from which alone, and from constants, the condition follows, if all on the way
/// are single elements; else null.
BlockArgument decidingArgument(Value condition) {
  constexpr size_t mostValues = 64;
  BlockArgument found;
  llvm::SetVector<Value> values;
  values.insert(condition);
  for (size_t i = 0; i < values.size(); ++i) {
    const Value value = values[i];
    auto type = llvm::dyn_cast<RankedTensorType>(value.getType());
    if (!type || !type.hasStaticShape() || type.getNumElements() != 1 || values.size() > mostValues)
      return {};
    if (auto argument = llvm::dyn_cast<BlockArgument>(value)) {
      if (found || !llvm::isa<func::FuncOp>(argument.getOwner()->getParentOp()))
        return {};
      found = argument;
      continue;
    }
    Operation *op = value.getDefiningOp();
    if (op->getNumOperands() == 0 && !llvm::isa<nn::ConstantOp>(op))
      return {};
    values.insert(op->operand_begin(), op->operand_end());
  }
  return found;
}

} // namespace

std::string remedy(NodeImporter &n, Value condition) {
  const BlockArgument argument = condition ? decidingArgument(condition) : BlockArgument();
  if (!argument)
    return {};
  auto function = llvm::cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::nameAttr);
  if (!name) // of a loop's body
    return {};
  const bool isFlag = elementType(argument).isInteger(1);
  if (isFlag)
    n.owner().deciding =
        DecidingInput{name.str(), argument.getArgNumber(), Shape(tensorType(argument).getShape())};
  return "; input '" + name.str() +
         "' alone decides it: say its value before compiling: --constant=" + name.str() + "=" +
         (isFlag ? "1" : "VALUE");
}

namespace {

/// One of two values. Where their sizes differ, the condition must be told by sizes: the result's size is
/// then an expression of them.
Value selected(NodeImporter &n, Value condition, Value yes, Value no) {
  if (n.failed())
    return {};
  const DimShape left = n.shapeOf(yes), right = n.shapeOf(no);
  if (NodeImporter::typeOf(yes) != NodeImporter::typeOf(no) || left.size() != right.size()) {
    n.fail("the condition depends on run-time data, and the branches give tensors of different types or "
           "ranks" +
           remedy(n, condition));
    return {};
  }
  DimShape larger, sizes;
  auto taken = asDim(condition);
  for (auto [a, b] : llvm::zip(left, right)) {
    const bool same = n.owner().resolve(a - b) == Dim(0);
    if (!same && (!taken || !a.isStatic() || !b.isStatic())) {
      n.fail("the condition depends on run-time data, and the branches give tensors of " + shapeString(left) +
             " and " + shapeString(right) + remedy(n, condition));
      return {};
    }
    larger.push_back(same ? a : Dim::max(a, b));
    sizes.push_back(same ? a : b + (a - b) * *taken);
  }
  Value result = n.build<nn::WhereOp>({condition, filledUp(n, yes, larger), filledUp(n, no, larger)});
  if (n.failed() || sizes == larger)
    return result;
  return n.build<nn::SliceOp>(result,
                              {n.dims("starts", DimShape(sizes.size(), Dim(0))), n.dims("sizes", sizes),
                               n.ints("steps", std::vector<int64_t>(sizes.size(), 1))});
}

/// Runs both branches and selects from their results.
void selectBranch(NodeImporter &n, const proto::GraphProto &yes, const proto::GraphProto &no) {
  Value condition = n.operand(0);
  if (n.failed())
    return;
  for (const proto::GraphProto *graph : {&yes, &no})
    if (std::string cost = costOf(*graph); !cost.empty())
      return n.fail("the condition (input 0, '" + n.proto().input(0) +
                    "') depends on run-time data, and a branch " + cost +
                    ": too much to run both and choose" + remedy(n, condition));
  condition = n.reshape(condition, {});
  std::optional<Values> results[2];
  for (auto [result, graph] : {std::pair(&results[0], &yes), std::pair(&results[1], &no)}) {
    DimReplacements before = n.owner().learntSoFar();
    *result = inlined(n, *graph);
    n.owner().forgetSince(std::move(before));
    if (!*result)
      return;
    if ((*result)->size() < n.outputCount())
      return n.fail("a branch has " + Twine((*result)->size()) + " outputs");
  }
  for (unsigned i = 0; i < n.outputCount(); ++i)
    if (n.wants(i))
      n.result(i, selected(n, condition, built(n, (*results[0])[i]), built(n, (*results[1])[i])));
}

void branch(NodeImporter &n) {
  const auto *yes = n.attribute("then_branch"), *no = n.attribute("else_branch");
  if (!yes || !no || !yes->has_g() || !no->has_g())
    return n.fail("a branch is missing");
  auto condition = n.known(0);
  if (n.failed())
    return;
  if (!condition || condition->size() != 1 || !condition->front().isStatic()) {
    if (condition && condition->size() != 1)
      return n.fail("the condition is not one value");
    return selectBranch(n, yes->g(), no->g());
  }
  auto outputs = inlined(n, condition->front() == Dim(0) ? no->g() : yes->g());
  if (!outputs)
    return;
  if (outputs->size() < n.outputCount())
    return n.fail("the branch has " + Twine(outputs->size()) + " outputs");
  for (unsigned i = 0; i < n.outputCount(); ++i)
    n.resultValue(i, (*outputs)[i]);
}

/// What a loop computes: the values that each step hands to the next, and those that each step adds to a
/// stack.
struct Unrolled {
  const proto::GraphProto &body;
  Values state;
  std::vector<SmallVector<Value>> stacks = {};
};

/// One more step; the condition for going on. Null where the node failed.
GraphValue *addStep(NodeImporter &n, Unrolled &loop, int64_t step, GraphValue *condition) {
  Values inputs = {knownScalar(n, step, n.i64Type()), condition};
  inputs.insert(inputs.end(), loop.state.begin(), loop.state.end());
  auto outputs = inlined(n, loop.body, inputs);
  if (!outputs)
    return nullptr;
  const size_t states = loop.state.size();
  loop.state.assign(outputs->begin() + 1, outputs->begin() + 1 + static_cast<int64_t>(states));
  for (size_t i = 0; i < loop.stacks.size(); ++i) {
    const Value one = built(n, (*outputs)[1 + states + i]);
    DimShape shape = n.shapeOf(one);
    shape.insert(shape.begin(), Dim(1));
    loop.stacks[i].push_back(n.failed() ? Value() : n.reshape(one, shape));
  }
  return n.failed() ? nullptr : outputs->front();
}

/// Stacks of no entries, whose shape a step that is not taken tells.
void emptyStacks(NodeImporter &n, Unrolled &loop, GraphValue *condition) {
  DimReplacements before = n.owner().learntSoFar();
  Unrolled trial{loop.body, loop.state, std::vector<SmallVector<Value>>(loop.stacks.size())};
  addStep(n, trial, 0, condition);
  n.owner().forgetSince(std::move(before));
  for (size_t i = 0; i < loop.stacks.size() && !n.failed(); ++i) {
    DimShape shape = n.shapeOf(trial.stacks[i].front());
    shape.front() = 0;
    loop.stacks[i].push_back(n.expand(n.scalar(NodeImporter::typeOf(trial.stacks[i].front()), 0), shape));
  }
}

/// The number of steps that a loop is unrolled to at most, where it is known when it ends; nothing where it
/// is run.
std::optional<int64_t> unrolledSteps(NodeImporter &n, GraphValue *condition) {
  const auto goesOn = holds(n, condition);
  if (goesOn == false)
    return 0;
  if (!goesOn)
    return std::nullopt;
  if (!n.has(0))
    return mostSteps + 1;
  auto steps = n.known(0);
  if (!steps || steps->size() != 1 || !steps->front().isStatic() || steps->front().value() > mostSteps)
    return std::nullopt;
  return std::max<int64_t>(steps->front().value(), 0);
}

/// Steps one after the other, until the condition is known not to hold. Results of each step that are no
/// state are stacked. False where it is not known when that is.
bool unrolls(NodeImporter &n, const proto::GraphProto &body, GraphValue *condition, int64_t limit) {
  Unrolled unrolled{body, {}};
  for (unsigned i = 2; i < n.inputCount(); ++i)
    unrolled.state.push_back(outerValue(n, i));
  const size_t states = unrolled.state.size();
  unrolled.stacks.resize(static_cast<size_t>(body.output_size()) - 1 - states);
  int64_t step = 0;
  for (; step < limit; ++step) {
    const auto goesOn = holds(n, condition);
    if (!goesOn || (*goesOn && step >= mostSteps))
      return false;
    if (!*goesOn)
      break;
    condition = addStep(n, unrolled, step, condition);
    if (!condition)
      return true;
  }
  const bool wantsStacks = n.outputCount() > states;
  if (step == 0 && wantsStacks)
    emptyStacks(n, unrolled, condition);
  for (size_t i = 0; i < states && i < n.outputCount(); ++i)
    n.resultValue(static_cast<unsigned>(i), unrolled.state[i]);
  for (size_t i = 0; i < unrolled.stacks.size() && !n.failed(); ++i)
    if (const auto index = static_cast<unsigned>(states + i); n.wants(index))
      n.result(index,
               unrolled.stacks[i].size() == 1 ? unrolled.stacks[i].front() : n.concat(unrolled.stacks[i], 0));
  return true;
}

void loop(NodeImporter &n) {
  const auto *body = n.attribute("body");
  if (!body || !body->has_g())
    return n.fail("the body is missing");
  const int64_t states = std::max<int64_t>(static_cast<int64_t>(n.inputCount()) - 2, 0),
                outputs = body->g().output_size();
  if (outputs < states + 1 || n.outputCount() > outputs - 1)
    return n.fail("the body has " + Twine(outputs) + " outputs");
  GraphValue *condition = n.has(1) ? outerValue(n, 1) : knownScalar(n, 1, n.builder().getI1Type());
  const auto limit = unrolledSteps(n, condition);
  if (n.failed() || (limit && unrolls(n, body->g(), condition, *limit)))
    return;
  runLoop(n, body->g(), condition);
}

} // namespace

void registerControlFlow(HandlerTable &table) {
  table.add("", "If", 1, 1, branch);
  table.add("", "Loop", 0, HandlerTable::anyNumber, loop);
}

} // namespace fusion::onnx
