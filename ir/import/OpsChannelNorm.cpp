// Norms whose scale is one number for each channel: of the batch, of an instance, of groups of channels.
#include "ir/import/OpsShared.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace fusion::onnx {

Value channelsFirst(NodeImporter &n, Value x) {
  auto perm = llvm::to_vector(llvm::seq<int64_t>(0, n.rankOf(x)));
  if (perm.size() > 2)
    std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
  return n.failed() ? Value() : n.transpose(x, perm);
}

Value channelsBehind(NodeImporter &n, Value x) {
  auto perm = llvm::to_vector(llvm::seq<int64_t>(0, n.rankOf(x)));
  if (perm.size() > 2)
    std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return n.failed() ? Value() : n.transpose(x, perm);
}

namespace {

/// [channels] as [channels, 1, …], to be laid over [batch, channels, sizes…] of `rank` dims, in f32.
Value perChannel(NodeImporter &n, Value vector, int64_t rank) {
  if (!n.failed() && n.rankOf(vector) != 1)
    n.fail("a scale or bias of " + shapeString(n.shapeOf(vector)) + " is not one number for each channel");
  if (n.failed())
    return {};
  DimShape shape(rank - 1, Dim(1));
  shape[0] = n.shapeOf(vector)[0];
  return n.cast(n.reshape(vector, shape), n.f32Type());
}

bool hasChannels(NodeImporter &n) {
  if (!n.failed() && n.rank(0) < 2)
    n.fail("an input of " + shapeString(n.shape(0)) + " has no channels");
  return !n.failed();
}

/// Mean and variance of each channel over everything else: [channels] each, in f32.
std::pair<Value, Value> channelStatistics(NodeImporter &n, Value x) {
  auto axes = llvm::to_vector(llvm::seq<int64_t>(0, n.rankOf(x)));
  axes.erase(axes.begin() + 1);
  const DimShape channels{n.shapeOf(x)[1]};
  const Value mean = n.reduce(x, "mean", axes);
  const Value variance = n.reduce(n.build<nn::SquareOp>(n.sub(x, mean)), "mean", axes);
  return {n.reshape(mean, channels), n.reshape(variance, channels)};
}

/// x * factor + shift, which follow from weights and statistics: those of the file, or in training mode the
/// batch's own, with which the file's are mixed as further results.
void batchNormalization(NodeImporter &n) {
  if (n.intAttribute("spatial", 1) == 0)
    return n.fail("only one scale and bias for each channel are supported");
  const bool training = n.intAttribute("training_mode", 0) != 0;
  const double momentum = n.floatAttribute("momentum", 0.9);
  if (!hasChannels(n))
    return;
  const int64_t rank = n.rank(0);
  const Type f32 = n.f32Type();
  const Value x = n.cast(n.operand(0), f32);
  Value mean = n.cast(n.operand(3), f32), variance = n.cast(n.operand(4), f32);
  if (training && !n.failed()) {
    const auto [batchMean, batchVariance] = channelStatistics(n, x);
    const auto mixed = [&](Value old, Value fresh, unsigned input) {
      return n.cast(n.add(n.mul(old, n.scalar(f32, momentum)), n.mul(fresh, n.scalar(f32, 1 - momentum))),
                    n.inputType(input));
    };
    if (n.wants(1))
      n.result(1, mixed(mean, batchMean, 3));
    if (n.wants(2))
      n.result(2, mixed(variance, batchVariance, 4));
    mean = batchMean;
    variance = batchVariance;
  }
  const Value inverse =
      n.build<nn::RsqrtOp>(n.add(variance, n.scalar(f32, n.floatAttribute("epsilon", 1e-5))));
  const Value factor = n.mul(n.cast(n.operand(1), f32), inverse);
  const Value shift = n.sub(n.cast(n.operand(2), f32), n.mul(mean, factor));
  const Value y = n.mul(x, perChannel(n, factor, rank));
  n.result(0, n.cast(n.add(y, perChannel(n, shift, rank)), n.inputType(0)));
}

/// (x - mean) / sqrt(variance + eps) over `axes`, in f32.
Value standardised(NodeImporter &n, Value x, ArrayRef<int64_t> axes, double eps) {
  x = n.cast(x, n.f32Type());
  x = n.sub(x, n.reduce(x, "mean", axes));
  const Value variance = n.reduce(n.build<nn::SquareOp>(x), "mean", axes);
  return n.mul(x, n.build<nn::RsqrtOp>(n.add(variance, n.scalar(n.f32Type(), eps))));
}

/// x of [batch, channels, sizes…] with `groups` of channels standardised together; null where they do not
/// divide.
Value standardisedGroups(NodeImporter &n, Value x, const Dim &groups, double eps) {
  if (n.failed())
    return {};
  const DimShape shape = n.shapeOf(x);
  const auto each = shape[1].dividedBy(groups);
  if (!each) {
    n.fail("channels of " + shapeString(shape) + " do not divide into " + groups.str() + " groups");
    return {};
  }
  const Dim size = *each * product(ArrayRef<Dim>(shape).drop_front(2));
  return n.reshape(standardised(n, n.reshape(x, {shape[0], groups, size}), {2}, eps), shape);
}

void scaledResult(NodeImporter &n, Value x, Value scale, Value bias) {
  const int64_t rank = n.rank(0);
  n.result(0, n.cast(n.add(n.mul(x, perChannel(n, scale, rank)), perChannel(n, bias, rank)), n.inputType(0)));
}

void instanceNormalization(NodeImporter &n) {
  if (!hasChannels(n))
    return;
  const double eps = n.floatAttribute("epsilon", 1e-5);
  scaledResult(n, standardisedGroups(n, n.operand(0), n.shape(0)[1], eps), n.operand(1), n.operand(2));
}

/// Until opset 20, scale and bias are one number for each group.
void groupNormalization(NodeImporter &n) {
  if (!hasChannels(n))
    return;
  if (n.typeAttribute("stash_type", n.f32Type()) != n.f32Type())
    return n.fail("stash_type other than float32 is not supported");
  const int64_t groups = n.intAttribute("num_groups", 0);
  if (groups < 1)
    return n.fail("num_groups is " + Twine(groups));
  const double eps = n.floatAttribute("epsilon", 1e-5);
  const Dim channels = n.shape(0)[1];
  const Value x = standardisedGroups(n, n.operand(0), groups, eps);
  Value scale = n.operand(1), bias = n.operand(2);
  const auto each = channels.dividedBy(groups);
  if (n.opset() < 21 && each && !n.failed())
    for (Value *vector : {&scale, &bias})
      *vector = n.reshape(n.expand(n.reshape(*vector, {groups, 1}), {groups, *each}), {channels});
  scaledResult(n, x, scale, bias);
}

/// Of com.microsoft: with the channels last unless it says otherwise, and perhaps an activation. With
/// `skips`, of the sum of the input, another tensor and a bias, which is a result too.
void groupNormOfChannels(NodeImporter &n, bool skips) {
  const bool channelsLast = n.intAttribute("channels_last", 1) != 0;
  const int64_t groups = n.intAttribute("groups", 0), activates = n.intAttribute("activation", 0);
  const double eps = n.floatAttribute("epsilon", 1e-5);
  if (!n.failed() && (groups < 1 || activates < 0 || activates > 1 || n.rank(0) < 3))
    return n.fail("groups is " + Twine(groups) + ", activation is " + Twine(activates) +
                  ", for an input of " + shapeString(n.shape(0)));
  Value x = n.operand(0);
  if (skips && !n.failed()) {
    Value skip = n.operand(3);
    if (n.rankOf(skip) == 2 && !n.failed()) { // [batch, channels]
      DimShape shape(n.rank(0), Dim(1));
      shape.front() = n.shapeOf(skip)[0];
      shape[channelsLast ? shape.size() - 1 : 1] = n.shapeOf(skip)[1];
      skip = n.reshape(skip, shape);
    }
    x = n.add(x, skip);
    if (n.has(4)) {
      DimShape shape(channelsLast ? 1 : n.rank(0) - 1, Dim(1));
      shape.front() = product(n.shape(4));
      x = n.add(x, n.reshape(n.operand(4), shape));
    }
    n.result(1, x);
  }
  Value y = standardisedGroups(n, channelsLast ? channelsFirst(n, x) : x, groups, eps);
  const int64_t rank = n.rank(0);
  y = n.add(n.mul(y, perChannel(n, n.operand(1), rank)), perChannel(n, n.operand(2), rank));
  if (activates != 0)
    y = n.build<nn::SiluOp>(y);
  n.result(0, n.failed() ? Value() : n.cast(channelsLast ? channelsBehind(n, y) : y, n.inputType(0)));
}

/// As the op's definition spells it: the variance is the mean of squares less the square of the mean.
void meanVarianceNormalization(NodeImporter &n) {
  std::vector<int64_t> axes = n.intsAttribute("axes", {0, 2, 3});
  for (int64_t &axis : axes)
    axis = n.axis(axis, n.rank(0));
  const Value x = n.cast(n.operand(0), n.f32Type()), mean = n.reduce(x, "mean", axes);
  const Value squares = n.reduce(n.build<nn::SquareOp>(x), "mean", axes);
  const Value deviation = n.build<nn::SqrtOp>(n.sub(squares, n.build<nn::SquareOp>(mean)));
  n.result(0, n.cast(n.div(n.sub(x, mean), n.add(deviation, n.scalar(n.f32Type(), 1e-9))), n.inputType(0)));
}

/// x / its norm along an axis; 0 where that is 0.
void lpNormalization(NodeImporter &n) {
  const int64_t p = n.intAttribute("p", 2), axis = n.axis(n.intAttribute("axis", -1), n.rank(0));
  if (p != 1 && p != 2)
    return n.fail("p is " + Twine(p) + ", neither 1 nor 2");
  const Type f32 = n.f32Type();
  const Value x = n.cast(n.operand(0), f32);
  const Value sum = n.reduce(p == 1 ? n.build<nn::AbsOp>(x) : n.build<nn::SquareOp>(x), "sum", {axis});
  const Value norm = p == 1 ? sum : n.build<nn::SqrtOp>(sum), zero = n.scalar(f32, 0);
  const Value y = n.build<nn::WhereOp>({n.build<nn::EqualOp>({norm, zero}), zero, n.div(x, norm)});
  n.result(0, n.cast(y, n.inputType(0)));
}

} // namespace

void registerChannelNorms(HandlerTable &table) {
  table.add("", "BatchNormalization", 5, 5, batchNormalization);
  table.add("", "InstanceNormalization", 3, 3, instanceNormalization);
  table.add("", "GroupNormalization", 3, 3, groupNormalization);
  table.preferToFunction("", "GroupNormalization");
  table.add("com.microsoft", "GroupNorm", 3, 3, [](NodeImporter &n) { groupNormOfChannels(n, false); });
  table.add("com.microsoft", "SkipGroupNorm", 4, 5, [](NodeImporter &n) { groupNormOfChannels(n, true); });
  table.add("", "MeanVarianceNormalization", 1, 1, meanVarianceNormalization);
  table.add("", "LpNormalization", 1, 1, lpNormalization);
}

} // namespace fusion::onnx
