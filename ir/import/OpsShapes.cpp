// Shape queries, and ops that give the same elements another shape.
#include "ir/import/Graph.h"
#include "ir/import/Known.h"

#include <set>
#include <utility>

using namespace mlir;

namespace fusion::onnx {

namespace {

void shapeQuery(NodeImporter &n) {
  DimShape shape = n.shape(0);
  auto rank = static_cast<int64_t>(shape.size());
  auto bound = [&](StringRef name, int64_t otherwise) {
    int64_t value = n.intAttribute(name, otherwise);
    return std::clamp<int64_t>(value < 0 ? value + rank : value, 0, rank);
  };
  int64_t start = bound("start", 0), end = std::max(start, bound("end", rank));
  DimShape part(shape.begin() + start, shape.begin() + end);
  n.resultKnown(0, part, {end - start}, n.i64Type());
}

void size(NodeImporter &n) { n.resultKnown(0, {product(n.shape(0))}, {}, n.i64Type()); }

/// Whether `total` elements can fill no number of groups of `part` but one: they are no more than one group
/// has, as the `min(64, seq)` rows of a buffer for `seq` tokens, and at least one where the group has any.
bool fillsOneGroup(const Dim &total, const Dim &part) {
  Dim product(1);
  std::map<std::string, Dim, std::less<>> ones, more;
  for (const std::string &symbol : part.symbols()) {
    product = product * Dim::symbol(symbol);
    ones.emplace(symbol, Dim(1));
    more.emplace(symbol, Dim::symbol(symbol) + 1);
  }
  const std::set<std::string> names = total.symbols();
  return llvm::all_of(names, [&](const std::string &name) { return ones.contains(name); }) &&
         part == product * part.substitute(ones) && (total.substitute(more) - 1).knownNonNegative() &&
         (part - total).knownNonNegative();
}

/// The number that total / part is for all of many sizes, small ones too: exporters and ops may spell one
/// size in two ways, (n + 3) // 4 and (n - 1) // 4 + 1, or take n rows of a table that has fewer for large n.
/// Sizes that do not divide are errors anyway. A run in which it is another is an error of the reshape's.
std::optional<Dim> numberBySamples(const Dim &total, const Dim &part) {
  constexpr int64_t samples[] = {1, 2, 3, 4, 5, 7, 8, 16, 31, 61, 128, 1021, 4093};
  constexpr size_t count = std::size(samples);
  std::set<std::string> names = total.symbols();
  names.merge(part.symbols());
  std::optional<int64_t> number;
  size_t exact = 0;
  for (size_t first = 0; first < count; ++first)
    for (size_t step : {0, 1, 3, 4}) {
      SymbolValues values;
      size_t at = first;
      for (const std::string &name : names)
        values[name] = samples[std::exchange(at, at + step) % count];
      const auto elements = total.evaluate(values), group = part.evaluate(values);
      if (!elements || !group || *group < 1)
        return std::nullopt;
      if (*elements % *group != 0)
        continue;
      if (number && *number != *elements / *group)
        return std::nullopt;
      number = *elements / *group;
      ++exact;
    }
  return number && exact >= count ? std::optional(Dim(*number)) : std::nullopt;
}

/// total / part for a -1 in a reshape.
std::optional<Dim> quotient(NodeImporter &n, const Dim &total, const Dim &part) {
  if (part == Dim(0))
    return std::nullopt;
  if (auto exact = total.dividedBy(part))
    return exact;
  if (total.isStatic() && part.isStatic())
    return std::nullopt;
  Dim resolvedTotal = n.owner().resolve(total), resolvedPart = n.owner().resolve(part);
  if (auto exact = resolvedTotal.dividedBy(resolvedPart))
    return exact;
  if (fillsOneGroup(resolvedTotal, resolvedPart))
    return Dim(1);
  auto number = numberBySamples(total, part);
  return number ? number : total.floorDiv(part);
}

void reshape(NodeImporter &n) {
  DimShape from = n.shape(0), to = n.requireKnown(1, "shape");
  if (n.failed())
    return;
  if (!isManageable(to))
    return n.fail("the shape is too complicated");
  bool keepZeros = n.intAttribute("allowzero", 0) != 0;
  int inferred = -1;
  Dim rest(1);
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == Dim(-1)) {
      if (inferred >= 0)
        return n.fail("the shape has more than one -1");
      inferred = static_cast<int>(i);
      continue;
    }
    if (to[i].isStatic() && to[i].value() < 0)
      return n.fail("the shape has the entry " + to[i].str());
    if (to[i] == Dim(0) && !keepZeros) {
      if (i >= from.size())
        return n.fail("the shape copies a dim that the input does not have");
      to[i] = from[i];
    }
    rest = rest * to[i];
  }
  if (inferred >= 0) {
    auto dim = quotient(n, product(from), rest);
    if (!dim)
      return n.fail("cannot infer -1: " + product(from).str() + " elements into groups of " + rest.str());
    to[inferred] = *dim;
  }
  resultReshaped(n, to);
}

void flatten(NodeImporter &n) {
  DimShape from = n.shape(0);
  int64_t axis = n.intAttribute("axis", 1), rank = static_cast<int64_t>(from.size());
  if (axis < -rank || axis > rank)
    return n.fail("axis " + Twine(axis) + " is out of range for rank " + Twine(rank));
  auto middle = from.begin() + (axis < 0 ? axis + rank : axis);
  resultReshaped(n, {product(std::span(from.begin(), middle)), product(std::span(middle, from.end()))});
}

/// Axes from the input (opset 13 on) or the attribute.
std::vector<int64_t> axesOf(NodeImporter &n) {
  return n.has(1) ? n.requireConstants(1, "axes") : n.intsAttribute("axes");
}

void squeeze(NodeImporter &n) {
  DimShape from = n.shape(0), to;
  std::vector<bool> dropped(from.size(), false);
  if (n.has(1) || n.hasAttribute("axes")) {
    for (int64_t axis : axesOf(n)) {
      int64_t at = n.axis(axis, static_cast<int64_t>(from.size()));
      if (n.failed())
        return;
      if (from[at].isStatic() && !(from[at] == Dim(1)))
        return n.fail("dim " + Twine(at) + " has size " + from[at].str() + ", not 1");
      dropped[at] = true;
    }
  } else {
    for (size_t i = 0; i < from.size(); ++i)
      dropped[i] = from[i] == Dim(1);
  }
  for (size_t i = 0; i < from.size(); ++i)
    if (!dropped[i])
      to.push_back(from[i]);
  resultReshaped(n, to);
}

void unsqueeze(NodeImporter &n) {
  DimShape from = n.shape(0), to;
  std::vector<int64_t> axes = axesOf(n);
  auto rank = static_cast<int64_t>(from.size() + axes.size());
  std::vector<bool> added(rank, false);
  for (int64_t axis : axes) {
    int64_t at = n.axis(axis, rank);
    if (n.failed())
      return;
    if (added[at])
      return n.fail("axis " + Twine(at) + " is given twice");
    added[at] = true;
  }
  auto next = from.begin();
  for (int64_t i = 0; i < rank; ++i)
    to.push_back(added[i] ? Dim(1) : *next++);
  resultReshaped(n, to);
}

void transpose(NodeImporter &n) {
  std::vector<int64_t> perm = n.intsAttribute("perm");
  if (!n.hasAttribute("perm"))
    for (int64_t i = n.rank(0); i-- > 0;)
      perm.push_back(i);
  n.result(0, n.transpose(n.operand(0), perm));
}

void expand(NodeImporter &n) {
  DimShape from = n.shape(0), target = n.requireKnown(1, "shape");
  if (n.failed())
    return;
  size_t rank = std::max(from.size(), target.size());
  from.insert(from.begin(), rank - from.size(), Dim(1));
  target.insert(target.begin(), rank - target.size(), Dim(1));
  for (size_t i = 0; i < rank; ++i)
    target[i] = broadcastDim(from[i], target[i]);
  n.result(0, n.expand(n.operand(0), target));
}

/// Tile [a, b] by [r, s]: reshape to [1, a, 1, b], expand to [r, a, s, b], reshape to [r a, s b].
void tile(NodeImporter &n) {
  DimShape from = n.shape(0), repeats = n.requireKnown(1, "repeats"), split, repeated, to;
  if (n.failed())
    return;
  if (repeats.size() != from.size())
    return n.fail("repeats has " + Twine(repeats.size()) + " entries for rank " + Twine(from.size()));
  for (size_t i = 0; i < from.size(); ++i) {
    if (!(repeats[i] == Dim(1))) {
      split.push_back(1);
      repeated.push_back(repeats[i]);
    }
    split.push_back(from[i]);
    repeated.push_back(from[i]);
    to.push_back(from[i] * repeats[i]);
  }
  n.result(0, n.reshape(n.expand(n.reshape(n.operand(0), split), repeated), to));
}

} // namespace

void registerShapes(HandlerTable &table) {
  table.add("", "Shape", 1, 1, shapeQuery);
  table.add("", "Size", 1, 1, size);
  table.add("", "Reshape", 2, 2, reshape);
  table.add("", "Flatten", 1, 1, flatten);
  table.add("", "Squeeze", 1, 2, squeeze);
  table.add("", "Unsqueeze", 1, 2, unsqueeze);
  table.add("", "Transpose", 1, 1, transpose);
  table.add("", "Expand", 2, 2, expand);
  table.add("", "Tile", 2, 2, tile);
}

} // namespace fusion::onnx
