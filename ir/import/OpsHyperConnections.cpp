// com.microsoft ops of models whose layers hand on several streams: [..., streams, size], or flattened.
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

#include "ir/import/Graph.h"

#include <cmath>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// An input as [..., streams, size]; `flat` says whether it was [..., streams * size].
Value grouped(NodeImporter &n, unsigned input, bool &flat) {
  const int64_t branches = n.intAttribute("num_branches", 0);
  Value x = n.operand(input);
  if (n.failed())
    return {};
  DimShape shape = n.shapeOf(x);
  flat = branches > 0;
  const auto each = flat && !shape.empty() ? shape.back().dividedBy(branches) : std::nullopt;
  if (branches < 0 || (flat && !each) || (!flat && shape.size() < 2)) {
    n.fail("streams of " + shapeString(shape) + " with num_branches " + Twine(branches));
    return {};
  }
  if (!flat)
    return x;
  shape.back() = branches;
  shape.push_back(*each);
  return n.reshape(x, shape);
}

/// A factor for each stream, [..., streams], or for each element, as one that broadcasts to `shape`.
Value perStream(NodeImporter &n, Value factor, const DimShape &shape) {
  if (n.failed() || n.rankOf(factor) == static_cast<int64_t>(shape.size()))
    return factor;
  DimShape own = n.shapeOf(factor);
  const Dim streams = shape[shape.size() - 2], size = shape.back();
  if (own.empty() || own.size() + 1 != shape.size()) {
    n.fail("factors of " + shapeString(own) + " for streams of " + shapeString(shape));
    return {};
  }
  const bool isWhole = sameDim(n, own.back(), streams * size) && !sameDim(n, own.back(), streams);
  own.back() = streams;
  own.push_back(isWhole ? size : Dim(1));
  return n.reshape(factor, own);
}

/// The norm of each stream in f32; `scale` has one factor for each element of all streams, or of one.
Value normed(NodeImporter &n, Value x, Value scale, double eps) {
  if (n.failed())
    return {};
  const DimShape shape = n.shapeOf(x);
  x = n.cast(x, n.f32Type());
  const Value mean = n.reduce(n.build<nn::SquareOp>(x), "mean", {static_cast<int64_t>(shape.size()) - 1});
  x = n.mul(x, n.build<nn::RsqrtOp>(n.add(mean, n.scalar(n.f32Type(), eps))));
  if (!scale || n.failed())
    return x;
  scale = n.cast(scale, n.f32Type());
  const Dim streams = shape[shape.size() - 2], size = shape.back();
  if (n.rankOf(scale) == 1 && !sameDim(n, n.shapeOf(scale)[0], size))
    scale = n.reshape(scale, {streams, size});
  return n.mul(x, scale);
}

/// [..., streams, size] as the node's input was.
Value asGiven(NodeImporter &n, Value x, bool flat) {
  if (n.failed() || !flat)
    return x;
  DimShape shape = n.shapeOf(x);
  const Dim size = shape.back();
  shape.pop_back();
  shape.back() = shape.back() * size;
  return n.reshape(x, shape);
}

/// [..., size] as [..., 1, size].
Value forEachStream(NodeImporter &n, Value x) {
  if (n.failed())
    return {};
  DimShape shape = n.shapeOf(x);
  if (shape.empty()) {
    n.fail("a tensor of rank 0 has no elements for each stream");
    return {};
  }
  shape.insert(shape.end() - 1, Dim(1));
  return n.reshape(x, shape);
}

void branchwiseNorm(NodeImporter &n) {
  bool flat = false;
  const Value x = grouped(n, 0, flat);
  const Value y = normed(n, x, n.optionalOperand(1), n.floatAttribute("epsilon", 1e-5));
  n.result(0, n.cast(asGiven(n, y, flat), n.inputType(0)));
}

void preMix(NodeImporter &n) {
  bool flat = false;
  const Value x = n.cast(grouped(n, 0, flat), n.f32Type());
  const Value factor = n.cast(perStream(n, n.operand(1), n.shapeOf(x)), n.f32Type());
  Value sum = n.mul(x, factor);
  if (n.failed())
    return;
  sum = n.reduce(sum, "sum", {n.rankOf(sum) - 2}, false);
  n.result(0,
           n.cast(n.mul(sum, n.scalar(n.f32Type(), n.floatAttribute("reduction_scale", 1))), n.inputType(0)));
}

void postMix(NodeImporter &n) {
  bool flat = false;
  Value x = n.cast(grouped(n, 0, flat), n.f32Type());
  const Value factor = n.cast(perStream(n, n.operand(2), n.shapeOf(x)), n.f32Type());
  const Value fresh = n.mul(factor, forEachStream(n, n.cast(n.operand(1), n.f32Type())));
  if (n.has(3))
    x = n.build<nn::MatmulOp>({n.cast(n.operand(3), n.f32Type()), x}, n.flag("transpose_a", true));
  n.result(0, n.cast(asGiven(n, n.add(x, fresh), flat), n.inputType(0)));
}

/// A block's input and gates by a product of low rank; each step rounds to the element type.
void lowRankMix(NodeImporter &n) {
  const double eps = n.floatAttribute("epsilon", 1e-5), slope = n.floatAttribute("silu_alpha", 1),
               scale = n.floatAttribute("reduction_scale", 1), divisor = n.floatAttribute("gate_div", 1),
               factor = n.floatAttribute("gate_mul", 1);
  const Type type = n.inputType(0), f32 = n.f32Type();
  if (!n.failed() && (n.intAttribute("num_branches", 0) < 1 || divisor == 0 || n.has(5) != n.has(6)))
    return n.fail("needs num_branches, a gate_div that is not 0, and the previous block's output and gate "
                  "together");
  bool flat = false;
  Value streams = grouped(n, 0, flat);
  auto number = [&](double value) { return n.scalar(f32, value); };
  auto wide = [&](Value x) { return n.cast(x, f32); };
  auto rounded = [&](Value x) { return n.cast(x, type); };
  auto sigmoid = [&](Value x) { return rounded(n.build<nn::SigmoidOp>(wide(x))); };
  if (n.has(5)) {
    const Value gate = wide(perStream(n, n.operand(6), n.shapeOf(streams)));
    streams = rounded(n.add(wide(streams), n.mul(gate, forEachStream(n, wide(n.operand(5))))));
  }
  n.result(2, asGiven(n, streams, flat));
  const Value own = rounded(normed(n, streams, n.operand(1), eps)), all = asGiven(n, own, flat);
  const Value down = n.build<nn::MatmulOp>({all, n.operand(2)}, {}, type);
  const Value scaled = rounded(n.mul(wide(down), number(slope)));
  const Value hidden = rounded(n.mul(wide(scaled), wide(sigmoid(scaled))));
  const Value up = n.build<nn::MatmulOp>({hidden, n.operand(3)}, {}, type);
  if (n.failed())
    return;
  const Value gates = n.reshape(sigmoid(up), n.shapeOf(own));
  Value sum = n.mul(wide(own), wide(gates));
  if (n.failed())
    return;
  sum = n.reduce(sum, "sum", {n.rankOf(sum) - 2}, false);
  n.result(0, rounded(n.mul(sum, number(scale))));
  const Value injected = n.build<nn::MatmulOp>({all, n.operand(4)}, {}, type);
  const Value quotient = rounded(n.div(wide(injected), number(divisor)));
  n.result(1, rounded(n.mul(wide(sigmoid(quotient)), number(factor))));
}

/// How much of a value goes on, by how a key and a query agree, stream by stream.
void engramGate(NodeImporter &n) {
  const double eps = n.floatAttribute("epsilon", 1e-5);
  const DimShape shape = n.shape(0);
  const Type f32 = n.f32Type();
  if (n.failed())
    return;
  if (shape.size() != 4 || !shape.back().isStatic() || shape.back().value() < 1 || (n.wants(1) && !n.has(5)))
    return n.fail("keys of " + shapeString(shape) + ", or no scale for the second result");
  const Value key = normed(n, n.operand(0), n.operand(3), eps),
              query = normed(n, n.operand(1), n.operand(4), eps);
  const Value product = n.mul(key, query);
  const double size = static_cast<double>(shape.back().value());
  const Value dot = n.mul(n.reduce(product, "sum", {3}), n.scalar(f32, 1 / std::sqrt(size)));
  const Value least = n.build<nn::MaxOp>({n.build<nn::AbsOp>(dot), n.scalar(f32, 1e-6)});
  const Value score = n.mul(n.build<nn::SignOp>(dot), n.build<nn::SqrtOp>(least));
  const Value y = n.mul(n.build<nn::SigmoidOp>(score), forEachStream(n, n.cast(n.operand(2), f32)));
  n.result(0, n.cast(y, n.inputType(0)));
  if (n.wants(1))
    n.result(1, n.cast(normed(n, y, n.operand(5), eps), n.inputType(0)));
}

} // namespace

void registerHyperConnections(HandlerTable &table) {
  auto add = [&](StringRef op, unsigned least, unsigned most, Handler handler) {
    table.add("com.microsoft", op, least, most, std::move(handler));
  };
  add("BranchwiseRMSNorm", 1, 2, branchwiseNorm);
  add("HyperConnectionPreMix", 2, 2, preMix);
  add("HyperConnectionPostMix", 3, 4, postMix);
  add("HyperConnectionLowRankMix", 5, 7, lowRankMix);
  add("EngramGate", 5, 6, engramGate);
}

} // namespace fusion::onnx
