// Conv as what it consists of: weighted sums of shifted inputs where every channel is by itself, matmuls of
// patches elsewhere.
#include "ir/import/Graph.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

std::optional<std::pair<Dim, Dim>> automaticPads(StringRef mode, const Dim &size, int64_t extent,
                                                 int64_t stride) {
  if (mode == "VALID")
    return std::pair(Dim(0), Dim(0));
  const Dim results = size.ceilDiv(stride);
  const Dim total = Dim::max((results - 1) * stride + extent - size, Dim(0));
  if (!total.isStatic() && stride != 1)
    return std::nullopt;
  const int64_t count = stride == 1 ? extent - 1 : total.value(), less = count / 2, more = count - less;
  return mode == "SAME_UPPER" ? std::pair(Dim(less), Dim(more)) : std::pair(Dim(more), Dim(less));
}

namespace {

/// More elements of a kernel than this are not spelled one by one.
constexpr int64_t mostTaps = 512;

/// A convolution over the dims behind batch and channels.
struct Convolution {
  Value x, weight;              ///< [batch, channels, sizes…], [results, channels / groups, kernel…]
  int64_t groups = 1;
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<Dim> low, high;   ///< padding
  DimShape sizes;               ///< of the result
  int64_t taps = 1;             ///< elements of the kernel

  size_t rank() const { return kernel.size(); }
};

/// Whether the input has so many channels. One that the file gives a name instead has.
bool hasChannels(NodeImporter &n, Convolution &conv, const Dim &needed) {
  DimShape x = n.shapeOf(conv.x);
  if (x[1] == needed)
    return true;
  if (!x[1].isStatic())
    n.takeAsEqual(x[1], needed);
  if (!(n.owner().resolve(x[1]) == needed))
    return false;
  x[1] = needed;
  conv.x = n.reshape(conv.x, x);
  return !n.failed();
}

bool collect(NodeImporter &n, Convolution &conv) {
  if (n.failed())
    return false;
  const DimShape x = n.shapeOf(conv.x), weight = n.shapeOf(conv.weight);
  if (x.size() < 3 || weight.size() != x.size()) {
    n.fail("an input of " + shapeString(x) + " and weights of " + shapeString(weight));
    return false;
  }
  const size_t rank = x.size() - 2;
  conv.groups = n.intAttribute("group", 1);
  conv.strides = n.intsAttribute("strides", std::vector<int64_t>(rank, 1));
  conv.dilations = n.intsAttribute("dilations", std::vector<int64_t>(rank, 1));
  std::vector<int64_t> pads = n.intsAttribute("pads", std::vector<int64_t>(2 * rank, 0));
  n.ignore({"kernel_shape"});
  const std::string mode = n.stringAttribute("auto_pad", "NOTSET");
  for (const Dim &dim : weight)
    if (!dim.isStatic()) {
      n.fail("the sizes of the weights are not numbers");
      return false;
    }
  if (conv.strides.size() != rank || conv.dilations.size() != rank || pads.size() != 2 * rank ||
      conv.groups < 1 || llvm::any_of(conv.strides, [](int64_t step) { return step < 1; }) ||
      llvm::any_of(conv.dilations, [](int64_t step) { return step < 1; }) ||
      !hasChannels(n, conv, weight[1] * conv.groups) || weight[0].value() % conv.groups != 0) {
    n.fail("group, strides, dilations or pads do not fit an input of " + shapeString(x) + " and weights of " +
           shapeString(weight));
    return false;
  }
  for (size_t i = 0; i < rank; ++i) {
    conv.kernel.push_back(weight[i + 2].value());
    conv.taps *= conv.kernel[i];
    const int64_t extent = (conv.kernel[i] - 1) * conv.dilations[i] + 1;
    Dim low = pads[i], high = pads[i + rank];
    if (mode != "NOTSET") {
      auto automatic = automaticPads(mode, x[i + 2], extent, conv.strides[i]);
      if (!automatic) {
        n.fail("auto_pad with strides needs sizes that are numbers");
        return false;
      }
      std::tie(low, high) = *automatic;
    }
    conv.low.push_back(low);
    conv.high.push_back(high);
    conv.sizes.push_back((x[i + 2] + low + high - extent).floorDiv(conv.strides[i]) + 1);
  }
  if (conv.taps == 0)
    n.fail("the kernel is empty");
  return !n.failed();
}

Value padded(NodeImporter &n, const Convolution &conv) {
  DimShape low(conv.rank() + 2, Dim(0)), high = low;
  bool isPadded = false;
  for (size_t i = 0; i < conv.rank(); ++i) {
    low[i + 2] = conv.low[i], high[i + 2] = conv.high[i];
    isPadded |= !(conv.low[i] == Dim(0)) || !(conv.high[i] == Dim(0));
  }
  return isPadded ? n.build<nn::PadOp>({conv.x, n.scalar(NodeImporter::typeOf(conv.x), 0)},
                                       {n.dims("low", low), n.dims("high", high)})
                  : conv.x;
}

/// What element `tap` of the kernel meets: [batch, channels, sizes…].
Value shifted(NodeImporter &n, const Convolution &conv, Value x, int64_t tap) {
  const DimShape from = n.shapeOf(x);
  DimShape starts(from.size(), Dim(0)), sizes = from;
  std::vector<int64_t> steps(from.size(), 1);
  for (size_t i = conv.rank(); i-- > 0; tap /= conv.kernel[i]) {
    starts[i + 2] = tap % conv.kernel[i] * conv.dilations[i];
    sizes[i + 2] = conv.sizes[i];
    steps[i + 2] = conv.strides[i];
  }
  return n.build<nn::SliceOp>(x, {n.dims("starts", starts), n.dims("sizes", sizes), n.ints("steps", steps)});
}

/// Every channel by itself: sums of its elements times the kernel's, in f32 and rounded once.
Value channelwise(NodeImporter &n, const Convolution &conv) {
  const Type f32 = n.f32Type();
  const Value x = padded(n, conv);
  const Dim channels = n.shapeOf(conv.x)[1];
  const Value weight = n.reshape(n.cast(conv.weight, f32), {channels, conv.taps});
  DimShape perChannel(conv.rank() + 1, Dim(1));
  perChannel[0] = channels;
  Value sum;
  for (int64_t tap = 0; tap < conv.taps && !n.failed(); ++tap) {
    const Value factor = n.reshape(n.slice(weight, 1, tap, 1), perChannel);
    const Value term = n.mul(n.cast(shifted(n, conv, x, tap), f32), factor);
    sum = sum ? n.add(sum, term) : term;
  }
  return sum;
}

/// The patches that the kernel meets as rows: [batch, places, channels * taps], channels outermost.
Value patches(NodeImporter &n, const Convolution &conv) {
  const DimShape x = n.shapeOf(conv.x);
  const Dim places = product(conv.sizes), columns = x[1] * conv.taps;
  bool isTiling = true; // side by side without a rest
  for (size_t i = 0; i < conv.rank(); ++i)
    isTiling &= conv.kernel[i] == conv.strides[i] && conv.dilations[i] == 1 && conv.low[i] == Dim(0) &&
                conv.high[i] == Dim(0) && conv.sizes[i] * conv.kernel[i] == x[i + 2];
  std::vector<int64_t> perm = {0};
  if (isTiling) {
    DimShape split = {x[0], x[1]};
    std::vector<int64_t> inside = {1};
    for (size_t i = 0; i < conv.rank(); ++i) {
      split.push_back(conv.sizes[i]);
      split.push_back(conv.kernel[i]);
      perm.push_back(static_cast<int64_t>(2 + 2 * i));
      inside.push_back(static_cast<int64_t>(3 + 2 * i));
    }
    perm.insert(perm.end(), inside.begin(), inside.end());
    return n.reshape(n.transpose(n.reshape(conv.x, split), perm), {x[0], places, columns});
  }
  if (conv.taps > mostTaps) {
    n.fail("a kernel of " + Twine(conv.taps) + " elements that does not tile its input");
    return {};
  }
  const Value all = padded(n, conv);
  DimShape one = {x[0], x[1], Dim(1), places};
  SmallVector<Value> parts;
  for (int64_t tap = 0; tap < conv.taps && !n.failed(); ++tap)
    parts.push_back(n.reshape(shifted(n, conv, all, tap), one));
  if (n.failed())
    return {};
  const Value columnsFirst =
      n.reshape(parts.size() == 1 ? parts[0] : n.concat(parts, 2), {x[0], columns, places});
  return n.transpose(columnsFirst, {0, 2, 1});
}

/// Rows of patches times the weights of their group: [batch, results, places].
Value matmulOfPatches(NodeImporter &n, const Convolution &conv) {
  const Value rows = patches(n, conv);
  const DimShape x = n.shapeOf(conv.x), weight = n.shapeOf(conv.weight);
  const Dim places = product(conv.sizes), depth = weight[1] * conv.taps;
  const Dim perGroup = weight[0].value() / conv.groups;
  if (n.failed())
    return {};
  if (conv.groups == 1) {
    const Value factors = n.transpose(n.reshape(conv.weight, {weight[0], depth}), {1, 0});
    return n.transpose(n.build<nn::MatmulOp>({rows, factors}), {0, 2, 1});
  }
  const Value grouped = n.transpose(n.reshape(rows, {x[0], places, conv.groups, depth}), {0, 2, 1, 3});
  const Value factors = n.transpose(n.reshape(conv.weight, {conv.groups, perGroup, depth}), {0, 2, 1});
  const Value y = n.build<nn::MatmulOp>({grouped, factors});
  return n.reshape(n.transpose(y, {0, 1, 3, 2}), {x[0], weight[0], places});
}

/// A vector with an entry for each channel of the results, to be laid over [batch, results, sizes…] of `rank`
/// dims.
Value perResult(NodeImporter &n, Value vector, int64_t rank) {
  if (n.failed() || product(n.shapeOf(vector)) == Dim(1))
    return n.failed() ? Value() : n.reshape(vector, {});
  DimShape shape(rank - 1, Dim(1));
  shape[0] = n.shapeOf(vector)[0];
  return n.reshape(vector, shape);
}

/// x convolved with the weights, as the node's attributes say. Null where the node failed.
Value convolved(NodeImporter &n, Value x, Value weight) {
  Convolution conv;
  conv.x = x;
  conv.weight = weight;
  if (!collect(n, conv))
    return {};
  const DimShape from = n.shapeOf(x), factors = n.shapeOf(weight);
  const Dim results = factors[0];
  const bool isChannelwise = factors[1] == Dim(1) && results == from[1] && conv.taps <= mostTaps;
  Value y = isChannelwise ? channelwise(n, conv) : matmulOfPatches(n, conv);
  if (n.failed())
    return {};
  DimShape shape = {from[0], results};
  shape.insert(shape.end(), conv.sizes.begin(), conv.sizes.end());
  return n.reshape(y, shape);
}

Value biasedConvolution(NodeImporter &n, bool channelsLast = false) {
  const Value x = n.operand(0);
  Value y = convolved(n, channelsLast ? channelsFirst(n, x) : x, n.operand(1));
  if (n.has(2))
    y = n.add(y, n.cast(perResult(n, n.operand(2), n.rank(0)), NodeImporter::typeOf(y)));
  return n.failed() ? Value() : n.cast(y, n.inputType(0));
}

void conv(NodeImporter &n) { n.result(0, biasedConvolution(n)); }

/// An integer input less its zero point, in f32: sums of products are exact up to 2^24.
Value integersAsFloats(NodeImporter &n, unsigned value, unsigned zeroPoint, bool perResultChannel) {
  Value x = n.cast(n.operand(value), n.f32Type());
  if (!n.has(zeroPoint) || n.failed())
    return x;
  Value shift = n.cast(n.operand(zeroPoint), n.f32Type());
  if (n.failed())
    return {};
  if (product(n.shapeOf(shift)) == Dim(1)) {
    shift = n.reshape(shift, {});
  } else if (perResultChannel) {
    if (n.rank(value) == 0 || n.rankOf(shift) != 1) {
      n.fail("zero points of " + shapeString(n.shapeOf(shift)) + " for " + shapeString(n.shape(value)));
      return {};
    }
    DimShape shape(n.rank(value), Dim(1));
    shape[0] = n.shapeOf(shift)[0];
    shift = n.reshape(shift, shape);
  }
  return n.sub(x, shift);
}

void convInteger(NodeImporter &n) {
  Value y = convolved(n, integersAsFloats(n, 0, 2, false), integersAsFloats(n, 1, 3, true));
  n.result(0, n.cast(y, mlirType(n.context(), DType::I32)));
}

/// `channels_last` is an attribute of com.microsoft's.
void qLinearConv(NodeImporter &n) {
  const bool channelsLast = n.intAttribute("channels_last", 0) != 0;
  const Value x = integersAsFloats(n, 0, 2, false);
  Value y = convolved(n, channelsLast ? channelsFirst(n, x) : x, integersAsFloats(n, 3, 5, true));
  if (n.has(8))
    y = n.add(y, n.cast(perResult(n, n.operand(8), n.rank(0)), n.f32Type()));
  Value scale = n.mul(scaleOperand(n, 1, false), perResult(n, scaleOperand(n, 4, false), n.rank(0)));
  y = n.mul(y, scale);
  n.result(0, quantised(n, channelsLast ? channelsBehind(n, y) : y, 6, 7));
}

/// A convolution, a tensor that is added to it, an activation.
void fusedConv(NodeImporter &n, bool channelsLast) {
  Value y = biasedConvolution(n, channelsLast);
  if (channelsLast)
    y = channelsBehind(n, y);
  if (n.has(3))
    y = n.add(y, n.operand(3));
  const std::vector<double> parameters = n.floatsAttribute("activation_params");
  const std::string name = n.stringAttribute("activation", "");
  if (name == "Clip" && parameters.size() == 2 && !n.failed()) {
    const Type type = NodeImporter::typeOf(y);
    y = n.build<nn::MaxOp>({y, n.scalar(type, parameters[0])});
    y = n.build<nn::MinOp>({y, n.scalar(type, parameters[1])});
  } else {
    y = activation(n, y, name, parameters.empty() ? 0.01 : parameters[0]);
  }
  n.result(0, y);
}

/// A depthwise convolution over what came before and the new values.
struct CausalConvolution {
  int64_t taps = 1, dilation = 1;
  bool channelsLast = false; ///< of x, the result and the states; computed is so in any case
  int64_t history() const { return (taps - 1) * dilation; }
  /// [batch, channels, length] as [batch, length, channels], or back.
  Value turned(NodeImporter &n, Value x) const {
    return n.failed() || channelsLast ? x : n.transpose(x, {0, 2, 1});
  }
};

/// Behind the values that a step before has left, or behind zeros, with the channels last.
Value behindPast(NodeImporter &n, const CausalConvolution &conv) {
  const Value x = conv.turned(n, n.operand(0));
  if (n.has(3))
    return n.concat({conv.turned(n, n.operand(3)), x}, 1);
  const DimShape low = {Dim(0), Dim(conv.history()), Dim(0)}, none(3, Dim(0));
  return conv.history() == 0 ? x
                             : n.build<nn::PadOp>({x, n.scalar(n.inputType(0), 0)},
                                                  {n.dims("low", low), n.dims("high", none)});
}

/// The attributes that only say what is so anyway.
bool hasPlainState(NodeImporter &n) {
  if (n.intAttribute("ndim", 1) != 1)
    n.fail("ndim is " + Twine(n.intAttribute("ndim", 1)) + ", only 1 is supported");
  for (StringRef name :
       {"state_window", "state_update_capacity", "input_channel_offset", "input_channels", "state_length"})
    if (n.intAttribute(name, 0) != 0)
      n.fail(name + " is not supported: only the state behind the last token is kept, of all channels");
  if (n.intAttribute("state_channels_last", -1) != -1)
    n.fail("state_channels_last is not supported: states are laid out as the input is");
  return !n.failed();
}

std::optional<CausalConvolution> causalConvolution(NodeImporter &n) {
  CausalConvolution conv;
  conv.dilation = n.intAttribute("dilation", 1);
  conv.channelsLast = n.intAttribute("channels_last", 0) != 0;
  const DimShape x = n.shape(0), weight = n.shape(1);
  if (n.failed() || !hasPlainState(n))
    return std::nullopt;
  const size_t channels = conv.channelsLast ? 2 : 1, length = 3 - channels;
  if (conv.dilation < 1 || x.size() != 3 || weight.size() != 3 || !(weight[1] == Dim(1)) ||
      !(weight[0] == x[channels]) || !weight[2].isStatic() || weight[2].value() < 1 ||
      weight[2].value() > mostTaps) {
    n.fail("an input of " + shapeString(x) + " and weights of " + shapeString(weight) +
           ", not [batch, channels, length] and [channels, 1, taps]");
    return std::nullopt;
  }
  conv.taps = weight[2].value();
  if (n.has(3) && (n.rank(3) != 3 || !(n.shape(3)[length] == Dim(conv.history())))) {
    n.fail("a past state of " + shapeString(n.shape(3)) + " where the kernel has " + Twine(conv.taps) +
           " elements");
    return std::nullopt;
  }
  return conv;
}

// Pattern: CausalConvWithState(x, weight, bias, past) -> all = concat(past, x); activation(conv(all)), last
// taps - 1 of all The products and the ops around it have their channels last, so that is how it is computed:
// the transposes in front of it and behind it meet their inverses.
void causalConvWithState(NodeImporter &n) {
  const std::string activation = n.stringAttribute("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    return n.fail("activation '" + activation + "' is none of none, silu and swish");
  const auto conv = causalConvolution(n);
  if (!conv)
    return;
  const Dim channels = n.shape(1)[0], length = n.shape(0)[conv->channelsLast ? 1 : 2];
  const Type f32 = n.f32Type();
  const Value all = behindPast(n, *conv),
              weights = n.reshape(n.cast(n.operand(1), f32), {channels, Dim(conv->taps)});
  Value sum;
  for (int64_t tap = 0; tap < conv->taps && !n.failed(); ++tap) {
    const Value factor = n.reshape(n.slice(weights, 1, tap, 1), {channels});
    const Value term = n.mul(n.cast(n.slice(all, 1, tap * conv->dilation, length), f32), factor);
    sum = sum ? n.add(sum, term) : term;
  }
  if (n.has(2))
    sum = n.add(sum, n.cast(n.operand(2), f32));
  Value y = n.cast(sum, n.inputType(0));
  if (activation != "none")
    y = n.build<nn::SiluOp>(y);
  n.result(0, conv->turned(n, y));
  n.result(1, conv->turned(n, n.slice(all, 1, length, conv->history())));
}

} // namespace

void registerConvolution(HandlerTable &table) {
  table.add("", "Conv", 2, 3, conv);
  table.add("", "CausalConvWithState", 2, 4, causalConvWithState);
  table.add("com.microsoft", "CausalConvWithState", 2, 4, causalConvWithState);
  table.preferToFunction("com.microsoft", "CausalConvWithState"); // with the channels first
  table.add("", "ConvInteger", 2, 4, convInteger);
  table.add("", "QLinearConv", 8, 9, qLinearConv);
  table.add("com.microsoft", "QLinearConv", 8, 9, qLinearConv);
  table.add("com.microsoft", "FusedConv", 2, 4, [](NodeImporter &n) { fusedConv(n, false); });
  table.add("com.microsoft", "NhwcConv", 2, 3, [](NodeImporter &n) { fusedConv(n, true); });
  table.add("com.microsoft", "NhwcFusedConv", 2, 4, [](NodeImporter &n) { fusedConv(n, true); });
}

} // namespace fusion::onnx
