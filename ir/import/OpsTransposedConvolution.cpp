// ConvTranspose: what every place of the input gives to the result is a matmul; the shares are added where
// they overlap.
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// More shares than this for a place of the result are not added one by one.
constexpr int64_t mostOverlaps = 512;

/// The dims behind batch and channels, one entry each.
struct Spread {
  Value x, weight; ///< [batch, channels, sizes…], [channels, results / groups, kernel…]
  int64_t groups = 1;
  std::vector<int64_t> kernel, strides, dilations, low, high, extra; ///< extra: output_padding

  size_t rank() const { return kernel.size(); }
  /// What a place of the input reaches, dilation included.
  int64_t extent(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
  /// How many strides that is.
  int64_t reach(size_t i) const { return (extent(i) + strides[i] - 1) / strides[i]; }
  int64_t overlaps() const {
    int64_t all = 1;
    for (size_t i = 0; i < rank(); ++i)
      all *= reach(i);
    return all;
  }
};

/// Pads that give the result the size that output_shape or auto_pad asks for.
bool findPads(NodeImporter &n, Spread &spread) {
  const DimShape x = n.shapeOf(spread.x);
  const size_t rank = spread.rank();
  const std::vector<int64_t> pads = n.intsAttribute("pads", std::vector<int64_t>(2 * rank, 0));
  std::vector<int64_t> wanted = n.intsAttribute("output_shape");
  const std::string mode = n.stringAttribute("auto_pad", "NOTSET");
  const bool isSame = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (pads.size() != 2 * rank || (!wanted.empty() && wanted.size() < rank)) {
    n.fail("pads or output_shape do not fit an input of " + shapeString(x));
    return false;
  }
  spread.low.assign(pads.begin(), pads.begin() + static_cast<int64_t>(rank));
  spread.high.assign(pads.begin() + static_cast<int64_t>(rank), pads.end());
  if (mode == "VALID")
    spread.low.assign(rank, 0), spread.high.assign(rank, 0);
  if (wanted.empty() && !isSame)
    return true;
  wanted.erase(wanted.begin(), wanted.end() - static_cast<int64_t>(std::min(rank, wanted.size())));
  for (size_t i = 0; i < rank; ++i) {
    if (!x[i + 2].isStatic()) {
      n.fail("output_shape and auto_pad need sizes that are numbers");
      return false;
    }
    const int64_t size = wanted.empty() ? x[i + 2].value() * spread.strides[i] : wanted[i];
    const int64_t total =
        spread.strides[i] * (x[i + 2].value() - 1) + spread.extra[i] + spread.extent(i) - size;
    // What is missing comes behind.
    spread.low[i] = total < 0 ? 0 : mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    spread.high[i] = total - spread.low[i];
  }
  return true;
}

bool collect(NodeImporter &n, Spread &spread) {
  if (n.failed())
    return false;
  const DimShape x = n.shapeOf(spread.x), weight = n.shapeOf(spread.weight);
  const size_t rank = x.size() < 3 ? 0 : x.size() - 2;
  spread.groups = n.intAttribute("group", 1);
  spread.strides = n.intsAttribute("strides", std::vector<int64_t>(rank, 1));
  spread.dilations = n.intsAttribute("dilations", std::vector<int64_t>(rank, 1));
  spread.extra = n.intsAttribute("output_padding", std::vector<int64_t>(rank, 0));
  n.ignore({"kernel_shape"});
  for (size_t i = 2; i < weight.size(); ++i)
    spread.kernel.push_back(weight[i].isStatic() ? weight[i].value() : 0);
  auto isPositive = [](int64_t value) { return value > 0; };
  if (rank == 0 || spread.rank() != rank || spread.strides.size() != rank ||
      spread.dilations.size() != rank || spread.extra.size() != rank || spread.groups < 1 ||
      !llvm::all_of(spread.kernel, isPositive) || !llvm::all_of(spread.strides, isPositive) ||
      !llvm::all_of(spread.dilations, isPositive) || !(x[1] == weight[0]) || !x[1].dividedBy(spread.groups)) {
    n.fail("group, strides, dilations or output_padding do not fit an input of " + shapeString(x) +
           " and weights of " + shapeString(weight));
    return false;
  }
  if (spread.overlaps() > mostOverlaps) {
    n.fail("a place of the result gets more than " + Twine(mostOverlaps) + " shares");
    return false;
  }
  return findPads(n, spread);
}

Value withZeros(NodeImporter &n, Value x, int64_t axis, const Dim &low, const Dim &high) {
  if (n.failed() || (low == Dim(0) && high == Dim(0)))
    return x;
  DimShape front(n.rankOf(x), Dim(0)), back = front;
  front[axis] = low;
  back[axis] = high;
  return n.build<nn::PadOp>({x, n.scalar(NodeImporter::typeOf(x), 0)},
                            {n.dims("low", front), n.dims("high", back)});
}

/// The kernel with its dilation spelled as zeros, up to a multiple of the strides.
Value filledKernel(NodeImporter &n, const Spread &spread) {
  Value weight = spread.weight;
  for (size_t i = 0; i < spread.rank() && !n.failed(); ++i) {
    const auto axis = static_cast<int64_t>(i + 2);
    const DimShape shape = n.shapeOf(weight);
    if (spread.dilations[i] > 1) {
      DimShape apart = shape, together = shape;
      apart.insert(apart.begin() + axis + 1, Dim(1));
      together[axis] = shape[axis] * spread.dilations[i];
      weight =
          n.reshape(withZeros(n, n.reshape(weight, apart), axis + 1, 0, spread.dilations[i] - 1), together);
      weight = n.slice(weight, axis, 0, spread.extent(i));
    }
    weight = withZeros(n, weight, axis, 0, spread.reach(i) * spread.strides[i] - spread.extent(i));
  }
  return weight;
}

/// What every place gives, in f32: [batch, results, size, reach, stride, size, reach, stride, …].
Value shares(NodeImporter &n, const Spread &spread) {
  const DimShape x = n.shapeOf(spread.x);
  const Value kernel = filledKernel(n, spread);
  if (n.failed())
    return {};
  const DimShape filled = n.shapeOf(kernel);
  const Dim places = product(ArrayRef<Dim>(x).drop_front(2)), perGroup = *x[1].dividedBy(spread.groups);
  const Dim columns = product(ArrayRef<Dim>(filled).drop_front());
  const Value rows = n.transpose(n.reshape(spread.x, {x[0], spread.groups, perGroup, places}), {0, 1, 3, 2});
  const Value factors = n.reshape(kernel, {spread.groups, perGroup, columns});
  const Value y = n.build<nn::MatmulOp>({rows, factors}, {}, n.f32Type());
  DimShape split = {x[0], spread.groups};
  split.insert(split.end(), x.begin() + 2, x.end());
  split.push_back(filled[1]);
  std::vector<int64_t> perm = {0, 1, static_cast<int64_t>(2 + spread.rank())};
  for (size_t i = 0; i < spread.rank(); ++i) {
    split.push_back(spread.reach(i));
    split.push_back(spread.strides[i]);
    const auto behind = static_cast<int64_t>(3 + spread.rank() + 2 * i);
    perm.insert(perm.end(), {static_cast<int64_t>(2 + i), behind, behind + 1});
  }
  Value result = n.transpose(n.reshape(y, split), perm);
  if (n.failed())
    return {};
  DimShape merged = n.shapeOf(result);
  merged[1] = merged[1] * merged[2];
  merged.erase(merged.begin() + 2);
  return n.reshape(result, merged);
}

/// Adds up along dim i: entry q of `reach` goes q strides further. Dim i becomes one dim of the result's
/// places.
Value overlapped(NodeImporter &n, Value x, const Spread &spread, size_t i) {
  const auto axis =
      static_cast<int64_t>(2 + i); // of size, reach and stride; the dims before are merged already
  Value sum;
  for (int64_t q = 0; q < spread.reach(i) && !n.failed(); ++q) {
    DimShape shape = n.shapeOf(x);
    shape.erase(shape.begin() + axis + 1);
    Value share = n.reshape(n.slice(x, axis + 1, q, 1), shape);
    share = withZeros(n, share, axis, q, spread.reach(i) - 1 - q);
    sum = sum ? n.add(sum, share) : share;
  }
  if (n.failed())
    return {};
  DimShape shape = n.shapeOf(sum);
  shape[axis] = shape[axis] * shape[axis + 1];
  shape.erase(shape.begin() + axis + 1);
  return n.reshape(sum, shape);
}

/// Cuts the pads off, and lets output_padding reach past the last share.
Value cut(NodeImporter &n, Value x, const Spread &spread, size_t i) {
  const auto axis = static_cast<int64_t>(2 + i);
  const Dim places = n.shapeOf(spread.x)[axis];
  const int64_t behind =
      spread.extra[i] + spread.extent(i) - spread.high[i]; // of the last place's first share
  const Dim end = (places - 1) * spread.strides[i] + behind;
  const int64_t missing = behind - spread.reach(i) * spread.strides[i];
  x = withZeros(n, x, axis, std::max<int64_t>(-spread.low[i], 0), std::max<int64_t>(missing, 0));
  return n.slice(x, axis, std::max<int64_t>(spread.low[i], 0), end - spread.low[i]);
}

void convTranspose(NodeImporter &n) {
  Spread spread;
  spread.x = n.operand(0);
  spread.weight = n.operand(1);
  if (!collect(n, spread))
    return;
  Value y = shares(n, spread);
  for (size_t i = 0; i < spread.rank() && !n.failed(); ++i)
    y = cut(n, overlapped(n, y, spread, i), spread, i);
  if (n.has(2) && !n.failed()) {
    DimShape shape(spread.rank() + 1, Dim(1));
    shape[0] = n.shape(2)[0];
    y = n.add(y, n.reshape(n.cast(n.operand(2), n.f32Type()), shape));
  }
  n.result(0, n.cast(y, n.inputType(0)));
}

} // namespace

void registerTransposedConvolution(HandlerTable &table) {
  table.add("", "ConvTranspose", 2, 3, convTranspose);
}

} // namespace fusion::onnx
