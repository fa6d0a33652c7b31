// Loop and Scan as loops that are run: what a step does is imported once, into a function of its own.
#include "ir/import/CountedLoop.h"
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

enum class Ends : uint8_t {
  Counted, ///< after a number of steps, whatever the condition is
  Unasked, ///< the same, if the condition turns out to hold
  ByCondition,
};

/// The body of a Loop, once. `steps`: how many at most, where that follows from sizes; `limit` where it is
/// data; neither where there is no limit. False where the body has to be built otherwise: the condition has
/// to be looked at, or `steps`, which says how many after all.
bool repeatBody(NodeImporter &n, const proto::GraphProto &body, Ends ends, std::optional<Dim> &steps,
                Value limit, Value condition, ArrayRef<Value> initial) {
  const bool conditional = ends == Ends::ByCondition;
  Value first = condition ? condition : n.scalar(flagType(n), 1);
  if (conditional && limit)
    first = n.build<nn::AndOp>({first, n.build<nn::LessOp>({n.scalar(n.i64Type(), 0), limit})});
  LoopBuilder loop(n);
  const Value goesOn = conditional ? loop.state(first) : Value();
  Values inputs = {graphValue(n, loop.index()),
                   conditional ? graphValue(n, goesOn) : knownScalar(n, 1, flagType(n))};
  const unsigned firstState = conditional ? 2 : 1;
  CountingStep step{.index = loop.index(), .first = condition};
  for (Value value : initial) {
    step.states.push_back({value, loop.state(value)});
    inputs.push_back(graphValue(n, step.states.back().inside));
  }
  auto outputs = n.failed() ? std::nullopt : inlined(n, body, inputs);
  if (!outputs)
    return true;
  if (ends == Ends::Unasked && holds(n, outputs->front()) != true)
    return false;
  if (!conditional && !steps)
    return n.fail("it never ends: there is neither a number of steps nor a condition that changes"), true;
  if (conditional && !limit) {
    step.goesOn = built(n, outputs->front());
    for (size_t i = 0; i < initial.size(); ++i)
      step.states[i].next = built(n, (*outputs)[1 + i]);
    if (n.failed())
      return true;
    if (auto counted = countedSteps(step)) {
      steps = steps ? Dim::min(*steps, *counted) : *counted;
      return false;
    }
  }
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
  for (unsigned i = 2; i < n.inputCount() && !n.failed(); ++i) {
    if (GraphValue *value = outerValue(n, i); value && value->sequence)
      return n.fail("its steps hand on a sequence (input " + Twine(i) +
                    "): how many they are must be known at import, and at most 64");
    initial.push_back(n.operand(i));
  }
  if (n.failed())
    return;
  const DimReplacements learnt = n.owner().learntSoFar();
  if (!limit && before && repeatBody(n, body, Ends::Unasked, steps, limit, asked, initial))
    return;
  n.owner().forgetSince(learnt);
  if (repeatBody(n, body, Ends::ByCondition, steps, limit, asked, initial))
    return;
  n.owner().forgetSince(learnt);
  repeatBody(n, body, Ends::Counted, steps, limit, Value(), initial);
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

/// What a Scan takes and gives, without a batch.
struct Scanned {
  const proto::GraphProto &body;
  SmallVector<Value> initial, sequences;
  std::vector<int64_t> axes, backwards;       ///< of each sequence
  std::vector<int64_t> outAxes, outBackwards; ///< of each stack
  std::vector<bool> wanted;                   ///< whether each stack is
};

/// The last values of the states, then the stacks, null where they are not wanted. Empty where the node
/// failed.
SmallVector<Value> scanned(NodeImporter &n, Scanned scan) {
  std::optional<Dim> steps;
  for (auto [sequence, axis] : llvm::zip(scan.sequences, scan.axes)) {
    axis = n.axis(axis, n.rankOf(sequence));
    if (n.failed())
      return {};
    const Dim size = n.shapeOf(sequence)[static_cast<size_t>(axis)];
    if (steps)
      n.takeAsEqual(*steps, size);
    steps = steps ? *steps : size;
  }
  if (n.failed())
    return {};
  LoopBuilder loop(n);
  Values values;
  for (Value value : scan.initial)
    values.push_back(graphValue(n, loop.state(value)));
  const Value step = loop.index();
  for (auto [i, sequence] : llvm::enumerate(scan.sequences)) {
    Value at = scan.backwards[i] ? n.sub(n.dimConstant({*steps - 1}, {}, n.i64Type()), step) : step;
    values.push_back(graphValue(n, n.build<nn::GatherOp>({sequence, at}, n.i64("axis", scan.axes[i]))));
  }
  auto outputs = n.failed() ? std::nullopt : inlined(n, scan.body, values);
  if (!outputs)
    return {};
  const size_t states = scan.initial.size();
  for (size_t i = 0; i < states; ++i)
    loop.next(static_cast<unsigned>(i), built(n, (*outputs)[i]));
  std::vector<unsigned> places;
  for (size_t i = 0; i < scan.wanted.size(); ++i)
    places.push_back(scan.wanted[i] ? loop.stack(built(n, (*outputs)[states + i]), *steps) : 0);
  const SmallVector<Value> last = loop.finish(steps);
  if (n.failed())
    return {};
  SmallVector<Value> results(last.begin(), last.begin() + static_cast<int64_t>(states));
  for (size_t i = 0; i < places.size(); ++i)
    results.push_back(scan.wanted[i] ? stacked(n, last[places[i]], scan.outAxes[i], scan.outBackwards[i] != 0)
                                     : Value());
  return results;
}

/// The node's body and inputs from `first` on; nothing where the node failed.
std::optional<Scanned> scanInputs(NodeImporter &n, unsigned first) {
  const auto *body = n.attribute("body");
  const int64_t count = n.intAttribute("num_scan_inputs", 0),
                states = static_cast<int64_t>(n.inputCount()) - first - count;
  if (!body || !body->has_g()) {
    n.fail("the body is missing");
    return std::nullopt;
  }
  const int64_t outputs = body->g().output_size();
  if (count < 1 || states < 0 || n.outputCount() > static_cast<unsigned>(outputs) || outputs < states) {
    n.fail("num_scan_inputs is " + Twine(count) + " for " + Twine(n.inputCount()) + " inputs");
    return std::nullopt;
  }
  Scanned scan{body->g()};
  for (unsigned i = first; i < n.inputCount(); ++i)
    (static_cast<int64_t>(i) < first + states ? scan.initial : scan.sequences).push_back(n.operand(i));
  for (int64_t i = states; i < outputs; ++i)
    scan.wanted.push_back(n.wants(static_cast<unsigned>(i)));
  scan.backwards = perTensor(n, first == 0 ? "scan_input_directions" : "directions", scan.sequences.size());
  scan.axes.resize(scan.sequences.size());
  scan.outAxes.resize(scan.wanted.size());
  scan.outBackwards.resize(scan.wanted.size());
  return n.failed() ? std::nullopt : std::optional(std::move(scan));
}

/// Opset 8: each entry of the batch is a Scan of its own. The states have a batch too.
void scanOfBatch(NodeImporter &n) {
  if (n.has(0))
    return n.fail(
        "sequence_lens (input 0) of opset 8 is not supported: convert the model to opset 9 or later");
  auto scan = scanInputs(n, 1);
  if (!scan)
    return;
  std::optional<Dim> batch;
  for (ArrayRef<Value> values : {ArrayRef(scan->initial), ArrayRef(scan->sequences)})
    for (Value value : values) {
      if (n.rankOf(value) < 1)
        return n.fail("an input of " + shapeString(n.shapeOf(value)) + " has no batch");
      if (batch)
        n.takeAsEqual(*batch, n.shapeOf(value)[0]);
      batch = batch ? *batch : n.shapeOf(value)[0];
    }
  LoopBuilder loop(n);
  const Value entry = loop.index();
  for (MutableArrayRef<Value> values : {MutableArrayRef(scan->initial), MutableArrayRef(scan->sequences)})
    for (Value &value : values)
      value = n.build<nn::GatherOp>({value, entry}, n.i64("axis", 0));
  const SmallVector<Value> inside = n.failed() ? SmallVector<Value>() : scanned(n, std::move(*scan));
  SmallVector<std::pair<unsigned, unsigned>> places; ///< the node's output, the loop's state
  for (auto [i, value] : llvm::enumerate(inside))
    if (const auto output = static_cast<unsigned>(i); n.wants(output))
      places.emplace_back(output, loop.stack(value, *batch));
  const SmallVector<Value> results = n.failed() ? SmallVector<Value>() : loop.finish(batch);
  if (!n.failed())
    for (auto [output, state] : places)
      n.result(output, results[state]);
}

void scan(NodeImporter &n) {
  if (n.opset() < 9)
    return scanOfBatch(n);
  auto scan = scanInputs(n, 0);
  if (!scan)
    return;
  scan->axes = perTensor(n, "scan_input_axes", scan->sequences.size());
  scan->outAxes = perTensor(n, "scan_output_axes", scan->wanted.size());
  scan->outBackwards = perTensor(n, "scan_output_directions", scan->wanted.size());
  if (n.failed())
    return;
  const SmallVector<Value> results = scanned(n, std::move(*scan));
  for (auto [i, value] : llvm::enumerate(results))
    if (const auto output = static_cast<unsigned>(i); n.wants(output))
      n.result(output, value);
}

} // namespace

void registerLoops(HandlerTable &table) { table.add("", "Scan", 0, HandlerTable::anyNumber, scan); }

} // namespace fusion::onnx
