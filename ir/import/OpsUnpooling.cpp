// What puts windows back where they came from: MaxUnpool and Col2Im.
#include "ir/import/Graph.h"
#include "ir/import/OpsFunctions.h"
#include "ir/import/OpsShared.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Tables of places are not spelled beyond this many numbers.
constexpr int64_t mostPlaces = int64_t(1) << 22;

bool allPositive(ArrayRef<int64_t> values) {
  return llvm::all_of(values, [](int64_t value) { return value > 0 && value < mostPlaces; });
}

bool areNoNegative(ArrayRef<int64_t> values) {
  return llvm::all_of(values, [](int64_t value) { return value >= 0 && value < mostPlaces; });
}

/// Indices count the elements of what MaxPool took, all dims together. A larger output_shape puts zeros
/// behind.
void maxUnpool(NodeImporter &n) {
  const DimShape x = n.shape(0);
  const std::vector<int64_t> kernel = n.intsAttribute("kernel_shape");
  const size_t rank = kernel.size();
  const std::vector<int64_t> strides = n.intsAttribute("strides", std::vector<int64_t>(rank, 1)),
                             pads = n.intsAttribute("pads", std::vector<int64_t>(2 * rank, 0));
  if (n.failed())
    return;
  if (rank == 0 || x.size() != rank + 2 || n.rank(1) != n.rank(0) || strides.size() != rank ||
      pads.size() != 2 * rank || !allPositive(kernel) || !allPositive(strides) || !areNoNegative(pads))
    return n.fail("kernel_shape, strides or pads do not fit an input of " + shapeString(x) +
                  " and indices of " + shapeString(n.shape(1)));
  DimShape shape = {x[0], x[1]};
  for (size_t i = 0; i < rank; ++i)
    shape.push_back((x[i + 2] - 1) * strides[i] + (kernel[i] - pads[i] - pads[i + rank]));
  const DimShape wanted = n.has(2) ? n.requireKnown(2, "output_shape") : shape;
  if (n.failed())
    return;
  if (wanted.size() != shape.size())
    return n.fail("output_shape has " + Twine(wanted.size()) + " entries");
  DimShape high;
  for (auto [to, from] : llvm::zip(wanted, shape)) {
    const Dim more = n.owner().resolve(to - from);
    if (!more.knownNonNegative())
      return n.fail("output_shape " + shapeString(wanted) + " is smaller than " + shapeString(shape));
    high.push_back(more);
  }
  const Dim count = product(x);
  for (auto [given, needed] : llvm::zip(n.shape(1), x))
    n.takeAsEqual(given, needed);
  const Value zero = n.scalar(n.inputType(0), 0);
  const Value places = n.reshape(n.cast(n.operand(1), n.i64Type()), {count, 1});
  Value y =
      n.build<nn::ScatterNdOp>({n.expand(zero, {product(shape)}), places, n.reshape(n.operand(0), {count})});
  y = n.reshape(y, shape);
  if (!llvm::all_of(high, [](const Dim &dim) { return dim == Dim(0); }))
    y = n.build<nn::PadOp>({y, zero}, {n.dims("low", DimShape(high.size(), Dim(0))), n.dims("high", high)});
  n.result(0, y);
}

/// Every element of the result adds up what lies on it: a gather of as many entries as overlap at most, where
/// those that lack read a zero behind the others.
void col2Im(NodeImporter &n) {
  const std::vector<int64_t> image = n.requireConstants(1, "image_shape"),
                             block = n.requireConstants(2, "block_shape");
  const size_t rank = image.size();
  const std::vector<int64_t> strides = n.intsAttribute("strides", std::vector<int64_t>(rank, 1)),
                             dilations = n.intsAttribute("dilations", std::vector<int64_t>(rank, 1)),
                             pads = n.intsAttribute("pads", std::vector<int64_t>(2 * rank, 0));
  const DimShape x = n.shape(0);
  if (n.failed())
    return;
  if (rank == 0 || block.size() != rank || strides.size() != rank || dilations.size() != rank ||
      pads.size() != 2 * rank || x.size() != 3 || !allPositive(image) || !allPositive(block) ||
      !allPositive(strides) || !allPositive(dilations) || !areNoNegative(pads))
    return n.fail("image_shape, block_shape, strides, dilations or pads do not fit an input of " +
                  shapeString(x));
  int64_t elements = 1, taps = 1, blocks = 1;
  std::vector<int64_t> counts;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t room = image[i] + pads[i] + pads[i + rank] - (dilations[i] * (block[i] - 1) + 1);
    counts.push_back(room < 0 ? 0 : room / strides[i] + 1);
    for (auto [product, by] : {std::pair(&elements, image[i]), {&taps, block[i]}, {&blocks, counts[i]}})
      if (by == 0 || (*product *= by) > mostPlaces)
        return n.fail("an image of " + Twine(image[i]) + " elements in blocks of " + Twine(block[i]) +
                      " is empty or too large");
  }
  const auto channels = x[1].dividedBy(taps);
  if (!channels || taps > mostPlaces / blocks || !sameDim(n, x[2], Dim(blocks)))
    return n.fail("an input of " + shapeString(x) + " is not " + Twine(blocks) + " blocks of " + Twine(taps) +
                  " elements");
  // For each element of the image the entries, tap * blocks + block, that lie on it.
  std::vector<std::vector<int64_t>> entries(static_cast<size_t>(elements));
  size_t most = 0;
  for (int64_t tap = 0; tap < taps; ++tap)
    for (int64_t at = 0; at < blocks; ++at) {
      int64_t place = 0, stride = 1, restTap = tap, restAt = at;
      bool isInside = true;
      for (size_t i = rank; i-- > 0; restTap /= block[i], restAt /= counts[i], stride *= image[i]) {
        const int64_t here = restAt % counts[i] * strides[i] + restTap % block[i] * dilations[i] - pads[i];
        isInside &= here >= 0 && here < image[i];
        place += here * stride;
      }
      if (!isInside)
        continue;
      auto &those = entries[static_cast<size_t>(place)];
      those.push_back(tap * blocks + at);
      most = std::max(most, those.size());
    }
  const auto overlaps = static_cast<int64_t>(std::max<size_t>(most, 1));
  if (overlaps > mostPlaces / elements)
    return n.fail("too many blocks lie on each other");
  std::vector<int64_t> table(static_cast<size_t>(overlaps * elements), taps * blocks);
  for (size_t place = 0; place < entries.size(); ++place)
    for (size_t i = 0; i < entries[place].size(); ++i)
      table[i * entries.size() + place] = entries[place][i];
  Value columns = n.reshape(n.operand(0), {x[0], *channels, taps * blocks});
  columns = n.build<nn::PadOp>({columns, n.scalar(n.inputType(0), 0)},
                               {n.dims("low", {0, 0, 0}), n.dims("high", {0, 0, 1})});
  const Value index = n.constant(Tensor::of<int64_t>(DType::I64, {overlaps, elements}, table));
  Value y = n.build<nn::GatherOp>({columns, index}, n.i64("axis", 2));
  y = n.reduce(y, "sum", {2}, false);
  DimShape shape = {x[0], *channels};
  shape.insert(shape.end(), image.begin(), image.end());
  n.result(0, n.reshape(y, shape));
}

} // namespace

void registerUnpooling(HandlerTable &table) {
  table.add("", "MaxUnpool", 2, 3, maxUnpool);
  table.add("", "Col2Im", 3, 3, col2Im);
}

} // namespace fusion::onnx
