// Loop and Scan as loops that are run: what a step does is imported once, into a function of its own.
#include "ir/import/LoopBuilder.h"
#include "ir/import/Subgraph.h"

using namespace mlir;

namespace fusion::onnx {

std::optional<Values> inlined(NodeImporter &n, const proto::GraphProto &graph,
                              ArrayRef<GraphValue *> inputs) {
  auto outputs = n.owner().inlineGraph(graph, inputs);
  if (outputs)
    return *outputs;
  n.fail(outputs.error().message);
  return std::nullopt;
}

Value built(NodeImporter &n, GraphValue *value) {
  if (n.failed())
    return {};
  auto result = n.owner().materialise(*value, n.location());
  if (result)
    return *result;
  n.fail(result.error().message);
  return {};
}

GraphValue *outerValue(NodeImporter &n, unsigned index) {
  return n.owner().scope().find(n.proto().input(static_cast<int>(index)));
}

GraphValue *knownScalar(NodeImporter &n, int64_t value, Type type) {
  GraphValue *result = n.owner().newValue("");
  result->known = DimShape{Dim(value)};
  result->element = type;
  return result;
}

GraphValue *graphValue(NodeImporter &n, Value value) {
  GraphValue *result = n.owner().newValue("");
  result->value = value;
  result->shape = n.shapeOf(value);
  result->element = NodeImporter::typeOf(value);
  return result;
}

std::optional<bool> holds(NodeImporter &n, GraphValue *condition) {
  auto contents = n.owner().known(*condition);
  if (!contents || !*contents || (*contents)->size() != 1 || !(**contents)[0].isStatic())
    return std::nullopt;
  return !((**contents)[0] == Dim(0));
}

namespace {

Type flagType(NodeImporter &n) { return n.builder().getI1Type(); }

/// The body of a Loop, once: `conditional` if its condition is looked at. `steps`: how many at most, where
/// that follows from sizes; `limit` where it is data; neither where there is no limit. False where the
/// condition has to be looked at.
bool repeatBody(NodeImporter &n, const proto::GraphProto &body, bool conditional, std::optional<Dim> steps,
                Value limit, Value condition, ArrayRef<Value> initial) {
  Value first = condition ? condition : n.scalar(flagType(n), 1);
  if (conditional && limit)
    first = n.build<nn::AndOp>({first, n.build<nn::LessOp>({n.scalar(n.i64Type(), 0), limit})});
  LoopBuilder loop(n);
  const Value goesOn = conditional ? loop.state(first) : Value();
  Values inputs = {graphValue(n, loop.index()),
                   conditional ? graphValue(n, goesOn) : knownScalar(n, 1, flagType(n))};
  const unsigned firstState = conditional ? 2 : 1;
  for (Value value : initial)
    inputs.push_back(graphValue(n, loop.state(value)));
  auto outputs = n.failed() ? std::nullopt : inlined(n, body, inputs);
  if (!outputs)
    return true;
  if (!conditional && holds(n, outputs->front()) != true)
    return false;
  if (!conditional && !steps)
    return n.fail("it never ends: there is neither a number of steps nor a condition that changes"), true;
  if (conditional) {
    Value next = n.reshape(built(n, outputs->front()), {});
    if (limit)
      next = n.build<nn::AndOp>(
          {next, n.build<nn::LessOp>({n.add(loop.index(), n.scalar(n.i64Type(), 1)), limit})});
    loop.next(0, next);
  }
  const auto states = static_cast<unsigned>(initial.size());
  for (unsigned i = 0; i < states; ++i)
    loop.next(firstState + i, built(n, (*outputs)[1 + i]));
  std::vector<std::pair<unsigned, unsigned>> stacks; ///< the node's output, the loop's state
  for (unsigned i = states; i < n.outputCount(); ++i)
    if (n.wants(i) && !n.failed()) {
      if (conditional)
        n.fail("output " + Twine(i) +
               " has an entry for each step, and how many there are depends on run-time data");
      else
        stacks.emplace_back(i, loop.stack(built(n, (*outputs)[1 + i]), *steps));
    }
  const SmallVector<Value> results = loop.finish(steps, conditional);
  if (n.failed())
    return true;
  for (unsigned i = 0; i < states && i < n.outputCount(); ++i)
    n.result(i, results[firstState + i]);
  for (auto [output, state] : stacks)
    n.result(output, results[state]);
  return true;
}

} // namespace

void runLoop(NodeImporter &n, const proto::GraphProto &body, GraphValue *condition) {
  std::optional<Dim> steps;
  Value limit;
  if (n.has(0)) {
    auto known = n.known(0);
    if (known && known->size() == 1)
      steps = known->front();
    else
      limit = n.reshape(n.cast(n.operand(0), n.i64Type()), {});
  }
  const auto before = holds(n, condition);
  const Value asked = before ? Value() : n.reshape(built(n, condition), {});
  SmallVector<Value> initial;
  for (unsigned i = 2; i < n.inputCount(); ++i)
    initial.push_back(n.operand(i));
  if (n.failed())
    return;
  const DimReplacements learnt = n.owner().learntSoFar();
  if (!limit && before && repeatBody(n, body, false, steps, limit, asked, initial))
    return;
  n.owner().forgetSince(learnt);
  repeatBody(n, body, true, steps, limit, asked, initial);
}

namespace {

/// One per input or output of a Scan, from an attribute that may be left out.
std::vector<int64_t> perTensor(NodeImporter &n, StringRef attribute, size_t count) {
  std::vector<int64_t> values = n.intsAttribute(attribute);
  values.resize(values.empty() ? count : values.size());
  if (values.size() != count)
    n.fail(attribute + " has " + Twine(values.size()) + " entries for " + Twine(count) + " tensors");
  return values;
}

/// `x` with dim 0 moved to `axis`, counted backwards if `reversed`.
Value stacked(NodeImporter &n, Value x, int64_t axis, bool reversed) {
  if (n.failed())
    return {};
  const Dim steps = n.shapeOf(x)[0];
  if (reversed)
    x = n.slice(x, 0, Dim::max(steps - 1, Dim(0)), steps, -1);
  axis = n.axis(axis, n.rankOf(x));
  std::vector<int64_t> perm;
  for (int64_t i = 1; i < n.rankOf(x); ++i)
    perm.push_back(i);
  if (n.failed())
    return {};
  perm.insert(perm.begin() + axis, 0);
  return n.transpose(x, perm);
}

void scan(NodeImporter &n) {
  if (n.opset() < 9)
    return n.fail("Scan of opset 8, which has a batch of its own, is not supported: convert the model to "
                  "opset 9 or later");
  const auto *body = n.attribute("body");
  const int64_t scanned = n.intAttribute("num_scan_inputs", 0),
                states = static_cast<int64_t>(n.inputCount()) - scanned;
  if (!body || !body->has_g())
    return n.fail("the body is missing");
  if (scanned < 1 || states < 0 || n.outputCount() > static_cast<unsigned>(body->g().output_size()) ||
      body->g().output_size() < states)
    return n.fail("num_scan_inputs is " + Twine(scanned) + " for " + Twine(n.inputCount()) + " inputs");
  const auto stacks = static_cast<size_t>(body->g().output_size() - states),
             inputs = static_cast<size_t>(scanned);
  std::vector<int64_t> axes = perTensor(n, "scan_input_axes", inputs),
                       backwards = perTensor(n, "scan_input_directions", inputs),
                       outAxes = perTensor(n, "scan_output_axes", stacks),
                       outBackwards = perTensor(n, "scan_output_directions", stacks);
  SmallVector<Value> initial, sequences;
  std::optional<Dim> steps;
  for (unsigned i = 0; i < n.inputCount() && !n.failed(); ++i) {
    if (i < states) {
      initial.push_back(n.operand(i));
      continue;
    }
    sequences.push_back(n.operand(i));
    int64_t &axis = axes[i - static_cast<size_t>(states)];
    axis = n.axis(axis, n.rank(i));
    if (n.failed())
      return;
    const Dim size = n.shape(i)[static_cast<size_t>(axis)];
    if (steps)
      n.takeAsEqual(*steps, size);
    steps = steps ? *steps : size;
  }
  if (n.failed())
    return;
  LoopBuilder loop(n);
  Values values;
  for (Value value : initial)
    values.push_back(graphValue(n, loop.state(value)));
  const Value step = loop.index();
  for (auto [i, sequence] : llvm::enumerate(sequences)) {
    Value at = backwards[i] ? n.sub(n.dimConstant({*steps - 1}, {}, n.i64Type()), step) : step;
    values.push_back(graphValue(n, n.build<nn::GatherOp>({sequence, at}, n.i64("axis", axes[i]))));
  }
  auto outputs = n.failed() ? std::nullopt : inlined(n, body->g(), values);
  if (!outputs)
    return;
  for (unsigned i = 0; i < states; ++i)
    loop.next(i, built(n, (*outputs)[i]));
  std::vector<unsigned> places;
  for (size_t i = 0; i < stacks; ++i)
    if (n.wants(static_cast<unsigned>(states) + i))
      places.push_back(loop.stack(built(n, (*outputs)[static_cast<size_t>(states) + i]), *steps));
    else
      places.push_back(0);
  const SmallVector<Value> results = loop.finish(steps);
  if (n.failed())
    return;
  for (unsigned i = 0; i < states; ++i)
    n.result(i, results[i]);
  for (size_t i = 0; i < stacks; ++i)
    if (const auto index = static_cast<unsigned>(states) + i; n.wants(static_cast<unsigned>(index)))
      n.result(static_cast<unsigned>(index),
               stacked(n, results[places[i]], outAxes[i], outBackwards[i] != 0));
}

} // namespace

void registerLoops(HandlerTable &table) { table.add("", "Scan", 0, HandlerTable::anyNumber, scan); }

} // namespace fusion::onnx
