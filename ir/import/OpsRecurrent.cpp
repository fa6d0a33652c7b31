// RNN, GRU and LSTM: products with the inputs of all steps at once, then a loop over the steps.
#include "ir/import/LoopBuilder.h"
#include "ir/import/OpsShared.h"
#include "ir/import/RecurrentActivation.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

enum : unsigned { inputX, inputW, inputR, inputB, inputLengths, inputH, inputC, inputP };
/// Scale and zero point of weights of 8 bits, from these on.
enum : unsigned { codesOfW = 8, codesOfR = 10 };
/// Sequences of no more steps are unrolled: single steps of a decoder.
constexpr int64_t mostUnrolled = 4;

struct Settings {
  int64_t gates = 1, hidden = 0, directions = 1;
  bool reverse = false, batchFirst = false, linearBeforeReset = false, coupled = false;
  bool isQuantised = false;            ///< weights are codes, [inputs, gates * hidden]
  double clip = 0;                     ///< 0: none
  std::vector<Activation> activations; ///< as many for each direction
};

std::optional<Settings> settingsOf(NodeImporter &n, int64_t gates, ArrayRef<StringRef> usual,
                                   bool isQuantised = false) {
  Settings settings{gates};
  settings.isQuantised = isQuantised;
  const std::string direction = n.stringAttribute("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    n.fail("direction is '" + direction + "', none of forward, reverse and bidirectional");
  settings.directions = direction == "bidirectional" ? 2 : 1;
  settings.reverse = direction == "reverse";
  settings.batchFirst = n.intAttribute("layout", 0) != 0;
  settings.linearBeforeReset = n.intAttribute("linear_before_reset", 0) != 0;
  settings.coupled = n.intAttribute("input_forget", 0) != 0;
  settings.clip = n.floatAttribute("clip", 0);
  for (auto [input, rank] : {std::pair(unsigned(inputX), 3), {unsigned(inputW), 3}, {unsigned(inputR), 3}})
    if (!n.failed() && n.rank(input) != rank)
      n.fail("input " + Twine(input) + " has rank " + Twine(n.rank(input)) + ", not " + Twine(rank));
  if (n.failed())
    return std::nullopt;
  DimShape r = n.shape(inputR);
  if (isQuantised)
    std::swap(r[1], r[2]);
  if (!r[2].isStatic() || !(r[1] == Dim(gates) * r[2]) || !(r[0] == Dim(settings.directions)))
    n.fail("the weights (input 2) of " + shapeString(r) + " are not those of " + Twine(gates) +
           " gates and " + Twine(settings.directions) + " directions");
  else
    settings.hidden = r[2].value();
  if (n.intAttribute("hidden_size", settings.hidden) != settings.hidden)
    n.fail("hidden_size is not that of the weights");
  settings.activations = recurrentActivations(n, settings.directions, usual);
  return n.failed() ? std::nullopt : std::optional(settings);
}

/// One direction of a layer. Steps see [batch, …].
class Direction {
public:
  Direction(NodeImporter &n, const Settings &settings, int64_t number, Value x)
      : n(n), settings(settings), number(number), steps(n.shapeOf(x)[0]), batch(n.shapeOf(x)[1]), x(x) {}

  /// Everything but what the steps do: `step` makes the next state of the products with the inputs and the
  /// state.
  template <class Step>
  void run(unsigned stateInputs, const Step &step) {
    isReversed = settings.reverse || number == 1;
    if (n.has(inputLengths))
      lengths = n.reshape(n.cast(n.operand(inputLengths), n.i64Type()), {batch, Dim(1)});
    Value sequence = isReversed ? reversed(x) : x;
    Value factor;
    const Value weight = weightOf(inputW, codesOfW, factor);
    products = withBias(times(sequence, weight, factor));
    recurrent = weightOf(inputR, codesOfR, recurrentFactor);
    for (unsigned i = 0; i < stateInputs; ++i)
      last.push_back(initial(inputH + i));
    if (n.failed())
      return;
    steps.isStatic() && steps.value() <= mostUnrolled &&steps.value() > 0 ? unroll(step) : loop(step);
    if (isReversed)
      all = reversed(all);
  }

  /// `of` rows of a weight or bias for gate `gate`, as the step needs it.
  Value gateRows(Value weight, int64_t gate, int64_t count = 1) {
    return n.slice(weight, 0, gate * settings.hidden, count * settings.hidden);
  }
  Value gate(Value x, int64_t index, int64_t count = 1) {
    return n.slice(x, n.rankOf(x) - 1, index * settings.hidden, count * settings.hidden);
  }
  /// With a factor the weight is of integers, and so is what x becomes, with a scale from its own range.
  Value times(Value x, Value weight, Value factor = {}) {
    if (!factor)
      return n.build<nn::MatmulOp>({x, weight}, n.flag("transpose_b", true));
    const Dynamic codes = dynamicallyQuantised(n, x);
    const Value shifted = n.sub(n.cast(codes.value, integer()), n.cast(codes.zeroPoint, integer()));
    const Value sums = n.build<nn::MatmulOp>({shifted, weight}, {}, integer());
    return n.mul(n.cast(sums, n.f32Type()), n.mul(codes.scale, factor));
  }
  Value fromState(Value state) { return times(state, recurrent, recurrentFactor); }
  Value clipped(Value x) {
    if (settings.clip <= 0)
      return x;
    const Type type = NodeImporter::typeOf(x);
    return n.build<nn::MinOp>(
        {n.build<nn::MaxOp>({x, n.scalar(type, -settings.clip)}), n.scalar(type, settings.clip)});
  }
  const Activation &activation(size_t which) const {
    const size_t each = settings.activations.size() / static_cast<size_t>(settings.directions);
    return settings.activations[each * static_cast<size_t>(number) + which];
  }
  Value activated(size_t which, Value x) { return activation(which).of(n, clipped(x)); }
  /// The part of this direction of an input that has one for each.
  Value part(unsigned input) {
    Value whole = n.operand(input);
    if (n.failed())
      return {};
    DimShape shape = n.shapeOf(whole);
    shape.erase(shape.begin());
    return n.reshape(n.slice(whole, 0, number, 1), shape);
  }

  Value recurrent;       ///< [gates * hidden, hidden]; integers, [hidden, gates * hidden], with the factor
  Value recurrentFactor; ///< null: none
  Value recurrentBias;   ///< [gates * hidden], where it must stay apart from the other
  bool separatesBias = false;
  Value all;               ///< [steps, batch, hidden]
  SmallVector<Value> last; ///< the state behind the last step, of each [batch, hidden]

private:
  Type integer() { return mlirType(n.context(), DType::I32); }

  /// The weights of this direction; integers less their zero points, and the scale, if they are codes.
  Value weightOf(unsigned input, unsigned codes, Value &factor) {
    const Value values = part(input);
    if (!settings.isQuantised)
      return values;
    factor = part(codes);
    return n.sub(n.cast(values, integer()), n.cast(part(codes + 1), integer()));
  }

  /// With sequence_lens each sequence is turned about within its own length.
  Value reversed(Value sequence) {
    if (n.failed())
      return {};
    if (!lengths)
      return n.slice(sequence, 0, Dim::max(steps - 1, Dim(0)), steps, -1);
    Value place = n.reshape(countFrom(n, 0, steps), {Dim(1), steps});
    Value mirrored = n.sub(n.sub(lengths, n.scalar(n.i64Type(), 1)), place);
    Value at = n.build<nn::WhereOp>({n.build<nn::LessOp>({place, lengths}), mirrored, place});
    Value byEntry = n.transpose(sequence, {1, 0, 2});
    return n.transpose(
        n.build<nn::GatherNdOp>({byEntry, n.reshape(at, {batch, steps, Dim(1)})}, n.i64("batch_dims", 1)),
        {1, 0, 2});
  }

  Value withBias(Value products) {
    if (!n.has(inputB))
      return products;
    const int64_t rows = settings.gates * settings.hidden;
    Value both = part(inputB);
    Value own = n.slice(both, 0, 0, rows);
    recurrentBias = n.slice(both, 0, rows, rows);
    return n.add(products, separatesBias ? own : n.add(own, recurrentBias));
  }

  Value initial(unsigned input) {
    const Type type = n.inputType(inputX);
    if (!n.has(input))
      return n.expand(n.scalar(type, 0), {batch, Dim(settings.hidden)});
    Value given = n.operand(input);
    if (settings.batchFirst && !n.failed())
      given = n.transpose(given, {1, 0, 2});
    if (n.failed())
      return {};
    return n.reshape(n.slice(given, 0, number, 1), {batch, Dim(settings.hidden)});
  }

  /// The next state, and the output: where a sequence has ended, the state stays and the output is 0.
  template <class Step>
  Value advance(const Step &step, Value inputs, Value index, SmallVector<Value> &state) {
    SmallVector<Value> next = step(*this, inputs, state);
    if (n.failed())
      return {};
    Value output = next[0];
    if (lengths) {
      Value goesOn = n.build<nn::LessOp>({index, lengths});
      for (auto [value, before] : llvm::zip(next, state))
        value = n.build<nn::WhereOp>({goesOn, value, before});
      output = n.build<nn::WhereOp>({goesOn, output, n.scalar(NodeImporter::typeOf(output), 0)});
    }
    state = next;
    return output;
  }

  template <class Step>
  void unroll(const Step &step) {
    SmallVector<Value> outputs;
    for (int64_t i = 0; i < steps.value() && !n.failed(); ++i) {
      DimShape shape = n.shapeOf(products);
      shape.erase(shape.begin());
      Value inputs = n.reshape(n.slice(products, 0, i, 1), shape);
      Value output = advance(step, inputs, n.scalar(n.i64Type(), static_cast<double>(i)), last);
      outputs.push_back(n.reshape(output, {Dim(1), batch, Dim(settings.hidden)}));
    }
    if (!n.failed())
      all = outputs.size() == 1 ? outputs.front() : n.concat(outputs, 0);
  }

  template <class Step>
  void loop(const Step &step) {
    LoopBuilder body(n);
    SmallVector<Value> state;
    for (Value value : last)
      state.push_back(body.state(value));
    Value index = body.index();
    Value output = advance(step, n.build<nn::GatherOp>({products, index}, n.i64("axis", 0)), index, state);
    if (n.failed())
      return;
    for (auto [i, value] : llvm::enumerate(state))
      body.next(static_cast<unsigned>(i), value);
    const unsigned stack = body.stack(output, steps);
    const SmallVector<Value> results = body.finish(steps);
    if (n.failed())
      return;
    last.assign(results.begin(), results.begin() + static_cast<int64_t>(last.size()));
    all = results[stack];
  }

  NodeImporter &n;
  const Settings &settings;
  int64_t number;
  Dim steps, batch;
  Value x, products, lengths;
  bool isReversed = false;
};

/// One value for each direction as one tensor with the directions along `axis`.
Value joined(NodeImporter &n, ArrayRef<Value> parts, int64_t axis) {
  SmallVector<Value> wide;
  for (Value part : parts) {
    if (n.failed())
      return {};
    DimShape shape = n.shapeOf(part);
    shape.insert(shape.begin() + axis, Dim(1));
    wide.push_back(n.reshape(part, shape));
  }
  return wide.size() == 1 ? wide.front() : n.concat(wide, axis);
}

/// The node, by what one step does. `states`: 1 for h, 2 for h and c.
template <class Step>
void layer(NodeImporter &n, const Settings &settings, unsigned states, bool separatesBias, const Step &step) {
  Value x = n.operand(inputX);
  if (settings.batchFirst)
    x = n.transpose(x, {1, 0, 2});
  SmallVector<Value> all;
  SmallVector<SmallVector<Value>> last(states);
  for (int64_t i = 0; i < settings.directions && !n.failed(); ++i) {
    Direction direction(n, settings, i, x);
    direction.separatesBias = separatesBias;
    direction.run(states, step);
    if (n.failed())
      return;
    all.push_back(direction.all);
    for (unsigned state = 0; state < states; ++state)
      last[state].push_back(direction.last[state]);
  }
  // [steps, directions, batch, hidden], or [batch, steps, directions, hidden].
  if (n.wants(0)) {
    Value y = joined(n, all, 1);
    n.result(0, settings.batchFirst && !n.failed() ? n.transpose(y, {2, 0, 1, 3}) : y);
  }
  for (unsigned state = 0; state < states; ++state)
    n.result(1 + state, joined(n, last[state], settings.batchFirst ? 1 : 0));
}

void rnn(NodeImporter &n) {
  auto settings = settingsOf(n, 1, {"Tanh"});
  if (!settings)
    return;
  layer(n, *settings, 1, false, [&](Direction &own, Value inputs, ArrayRef<Value> state) {
    return SmallVector<Value>{own.activated(0, n.add(inputs, own.fromState(state[0])))};
  });
}

void gru(NodeImporter &n) {
  auto settings = settingsOf(n, 3, {"Sigmoid", "Tanh"});
  if (!settings)
    return;
  const bool after = settings->linearBeforeReset;
  const int64_t hidden = settings->hidden;
  layer(n, *settings, 1, /*separatesBias=*/true,
        [&, after](Direction &own, Value inputs, ArrayRef<Value> state) {
          const Value h = state[0], bias = own.recurrentBias;
          auto biased = [&](Value x, int64_t gate, int64_t count) {
            return bias ? n.add(x, own.gateRows(bias, gate, count)) : x;
          };
          Value all = after ? biased(own.times(h, own.recurrent), 0, 3) : Value();
          Value two =
              after ? own.gate(all, 0, 2) : biased(own.times(h, own.gateRows(own.recurrent, 0, 2)), 0, 2);
          Value gates = own.activated(0, n.add(own.gate(inputs, 0, 2), two));
          Value update = n.slice(gates, 1, 0, hidden), reset = n.slice(gates, 1, hidden, hidden);
          Value past = after ? n.mul(reset, own.gate(all, 2))
                             : biased(own.times(n.mul(reset, h), own.gateRows(own.recurrent, 2)), 2, 1);
          Value fresh = own.activated(1, n.add(own.gate(inputs, 2), past));
          Value one = n.scalar(NodeImporter::typeOf(update), 1);
          return SmallVector<Value>{n.add(n.mul(n.sub(one, update), fresh), n.mul(update, h))};
        });
}

/// DynamicQuantizeLSTM is one whose weights are codes of 8 bits.
void lstm(NodeImporter &n, bool isQuantised) {
  for (unsigned index = codesOfW; isQuantised && index < codesOfR + 2; ++index)
    if (!n.has(index))
      return n.fail("input " + Twine(index) + " is missing");
  auto settings = settingsOf(n, 4, {"Sigmoid", "Tanh", "Tanh"}, isQuantised);
  if (!settings)
    return;
  const bool peeps = n.has(inputP), coupled = settings->coupled;
  layer(n, *settings, 2, false, [&, peeps, coupled](Direction &own, Value inputs, ArrayRef<Value> state) {
    const Value c = state[1];
    Value gates = n.add(inputs, own.fromState(state[0])); // i, o, f, c
    Value peepholes = peeps ? own.part(inputP) : Value(); // i, o, f
    auto seen = [&](int64_t gate, Value cell) {
      Value x = own.gate(gates, gate);
      return peeps ? n.add(x, n.mul(own.gateRows(peepholes, gate), cell)) : x;
    };
    Value in = own.activated(0, seen(0, c));
    Value forget = coupled ? n.sub(n.scalar(NodeImporter::typeOf(in), 1), in) : own.activated(0, seen(2, c));
    Value cell = n.add(n.mul(forget, c), n.mul(in, own.activated(1, own.gate(gates, 3))));
    Value out = own.activated(0, seen(1, cell));
    return SmallVector<Value>{n.mul(out, own.activation(2).of(n, cell)), cell}; // what leaves is not clipped
  });
}

} // namespace

void registerRecurrent(HandlerTable &table) {
  table.add("", "RNN", 3, 6, rnn);
  table.add("", "GRU", 3, 6, gru);
  table.add("", "LSTM", 3, 8, [](NodeImporter &n) { lstm(n, false); });
  table.add("com.microsoft", "DynamicQuantizeLSTM", 3, 12, [](NodeImporter &n) { lstm(n, true); });
}

} // namespace fusion::onnx
