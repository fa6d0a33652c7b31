// Sequences and optionals: lists of values that are known at import. Only their entries are in the module.
#include "ir/import/Known.h"
#include "ir/import/OpsFunctions.h"
#include "ir/import/Subgraph.h"

using namespace mlir;

namespace fusion::onnx {

namespace {

/// Longer sequences are not spelled out.
constexpr int64_t mostEntries = 4096;

GraphValue *sequenceOf(NodeImporter &n, Values entries) {
  GraphValue *result = n.owner().newValue(n.wants(0) ? n.proto().output(0) : "");
  result->sequence = std::move(entries);
  return result;
}

void resultSequence(NodeImporter &n, Values entries) {
  if (n.failed())
    return;
  if (static_cast<int64_t>(entries.size()) > mostEntries)
    return n.fail("a sequence of more than " + Twine(mostEntries) + " tensors");
  n.resultValue(0, sequenceOf(n, std::move(entries)));
}

/// The entries of input `index`; empty where the node failed.
Values entriesOf(NodeImporter &n, unsigned index) {
  GraphValue *value = n.has(index) ? outerValue(n, index) : nullptr;
  if (value && value->sequence)
    return *value->sequence;
  n.fail("input " + Twine(index) + " is " +
         (!value                   ? "missing"
          : value->isEmptyOptional ? value->whyNoTensor()
                                   : "no sequence whose length is known"));
  return {};
}

/// Input `index` if it is a tensor; fails else.
GraphValue *tensorInput(NodeImporter &n, unsigned index) {
  GraphValue *value = n.has(index) ? outerValue(n, index) : nullptr;
  if (value && value->whyNoTensor().empty())
    return value;
  n.fail("input " + Twine(index) + " is " + (value ? value->whyNoTensor() : "missing"));
  return nullptr;
}

/// The place that input `index` names, counted from the end if negative; `last` is the largest.
size_t placeOf(NodeImporter &n, unsigned index, int64_t size, int64_t last) {
  const std::vector<int64_t> given = n.requireConstants(index, "the place in the sequence");
  if (n.failed())
    return 0;
  if (given.size() != 1)
    n.fail("the place in the sequence (input " + Twine(index) + ") is not one number");
  else if (given[0] < -size || given[0] > last)
    n.fail("place " + Twine(given[0]) + " is out of range for a sequence of " + Twine(size));
  return n.failed() ? 0 : static_cast<size_t>(given[0] < 0 ? given[0] + size : given[0]);
}

void construct(NodeImporter &n) {
  Values entries;
  for (unsigned i = 0; i < n.inputCount() && !n.failed(); ++i)
    entries.push_back(tensorInput(n, i));
  resultSequence(n, std::move(entries));
}

void at(NodeImporter &n) {
  const Values entries = entriesOf(n, 0);
  const auto size = static_cast<int64_t>(entries.size());
  const size_t place = placeOf(n, 1, size, size - 1);
  if (!n.failed())
    n.resultValue(0, entries[place]);
}

void insert(NodeImporter &n) {
  Values entries = entriesOf(n, 0);
  GraphValue *value = tensorInput(n, 1);
  const auto size = static_cast<int64_t>(entries.size());
  const size_t place = n.has(2) ? placeOf(n, 2, size, size) : entries.size();
  if (n.failed())
    return;
  entries.insert(entries.begin() + static_cast<int64_t>(place), value);
  resultSequence(n, std::move(entries));
}

void erase(NodeImporter &n) {
  Values entries = entriesOf(n, 0);
  const auto size = static_cast<int64_t>(entries.size());
  if (!n.failed() && size == 0)
    return n.fail("the sequence has nothing to erase");
  const size_t place = n.has(1) ? placeOf(n, 1, size, size - 1) : entries.size() - 1;
  if (n.failed())
    return;
  entries.erase(entries.begin() + static_cast<int64_t>(place));
  resultSequence(n, std::move(entries));
}

void length(NodeImporter &n) {
  const Values entries = entriesOf(n, 0);
  if (!n.failed())
    n.resultKnown(0, {Dim(static_cast<int64_t>(entries.size()))}, {}, n.i64Type());
}

/// Where the parts of a dim begin and how long they are.
using Parts = std::vector<std::pair<Dim, Dim>>;

/// Parts of `each`, the last of which may be shorter.
Parts equalParts(NodeImporter &n, const Dim &size, int64_t each) {
  Parts parts;
  if (!size.isStatic())
    n.fail("how many parts there are depends on '" + size.str() + "', which is not a number");
  else if (each < 1)
    n.fail("parts of " + Twine(each));
  else if ((size.value() - 1) / each >= mostEntries)
    n.fail("a sequence of more than " + Twine(mostEntries) + " tensors");
  if (n.failed())
    return {};
  each = std::min(each, std::max<int64_t>(size.value(), 1));
  for (int64_t rest = size.value(); rest > 0; rest -= std::min(each, rest))
    parts.emplace_back(size.value() - rest, std::min(each, rest));
  return parts;
}

Parts givenParts(NodeImporter &n, const Dim &size, const DimShape &sizes) {
  Parts parts;
  Dim begin = 0;
  for (const Dim &part : sizes) {
    if (part.isStatic() && part.value() < 0)
      n.fail("a part of " + part.str());
    parts.emplace_back(begin, part);
    begin = begin + part;
  }
  const Dim rest = n.owner().resolve(size - begin);
  if (!n.failed() && rest.isStatic() && !(rest == Dim(0)))
    n.fail("parts of " + begin.str() + " together for a dim of " + size.str());
  else if (!n.failed())
    n.takeAsEqual(begin, size);
  return parts;
}

GraphValue *knownValue(NodeImporter &n, KnownInts contents, Type type) {
  GraphValue *value = n.owner().newValue("");
  value->known = std::move(contents.values);
  value->shape = DimShape(contents.shape.begin(), contents.shape.end());
  value->element = type;
  return value;
}

/// One part of input 0, without the dim that was split unless `keeps`.
GraphValue *partOf(NodeImporter &n, int64_t axis, const std::pair<Dim, Dim> &part, bool keeps) {
  DimShape shape = n.shape(0);
  shape[axis] = part.second;
  if (!keeps)
    shape.erase(shape.begin() + axis);
  if (auto whole = knownInput(n, 0); whole && part.first.isStatic() && part.second.isStatic()) {
    std::vector<int64_t> starts(whole->shape.size(), 0), sizes = whole->shape, steps(sizes.size(), 1);
    starts[axis] = part.first.value();
    sizes[axis] = part.second.value();
    KnownInts taken = sliceKnown(*whole, starts, sizes, steps);
    taken.shape = *staticShape(shape);
    return knownValue(n, std::move(taken), n.inputType(0));
  }
  const Value value = n.reshape(n.slice(n.operand(0), axis, part.first, part.second), shape);
  return n.failed() ? nullptr : graphValue(n, value);
}

void split(NodeImporter &n) {
  const int64_t axis = n.axis(n.intAttribute("axis", 0), n.rank(0));
  const bool keeps = n.has(1) || n.intAttribute("keepdims", 1) != 0;
  if (n.failed())
    return;
  const Dim size = n.shape(0)[axis];
  Parts parts;
  if (!n.has(1)) {
    parts = equalParts(n, size, 1);
  } else {
    const DimShape given = n.requireKnown(1, "split");
    if (n.rank(1) > 1)
      n.fail("split (input 1) has " + Twine(n.rank(1)) + " dims");
    if (n.failed())
      return;
    const bool isOne = n.rank(1) == 0;
    if (isOne && !given.front().isStatic())
      return n.fail("split (input 1) is '" + given.front().str() + "', not a number");
    parts = isOne ? equalParts(n, size, given.front().value()) : givenParts(n, size, given);
  }
  Values entries;
  for (const auto &part : parts)
    if (!n.failed())
      entries.push_back(partOf(n, axis, part, keeps));
  resultSequence(n, std::move(entries));
}

/// The entries as one vector of integers, if that is what they are, and if they are known.
std::optional<DimShape> knownVector(NodeImporter &n, const Values &entries, bool isNewAxis) {
  DimShape all;
  for (GraphValue *entry : entries) {
    auto contents = n.owner().known(*entry);
    if (!contents || !*contents || entry->shape.size() != (isNewAxis ? 0 : 1))
      return std::nullopt;
    all.insert(all.end(), (*contents)->begin(), (*contents)->end());
  }
  return all;
}

void concat(NodeImporter &n) {
  const Values entries = entriesOf(n, 0);
  const bool isNewAxis = n.intAttribute("new_axis", 0) != 0;
  const int64_t given = n.intAttribute("axis", 0);
  if (!n.failed() && entries.empty())
    return n.fail("the sequence is empty: what it would hold is not known");
  if (n.failed())
    return;
  const auto rank = static_cast<int64_t>(entries.front()->shape.size());
  const int64_t axis = n.axis(given, isNewAxis ? rank + 1 : rank);
  if (n.failed())
    return;
  if (auto vector = knownVector(n, entries, isNewAxis)) {
    const auto count = static_cast<int64_t>(vector->size());
    return n.resultKnown(0, std::move(*vector), {count}, entries.front()->element);
  }
  SmallVector<Value> parts;
  for (GraphValue *entry : entries) {
    Value part = built(n, entry);
    if (n.failed())
      return;
    DimShape shape = n.shapeOf(part);
    if (isNewAxis && static_cast<int64_t>(shape.size()) >= axis) {
      shape.insert(shape.begin() + axis, Dim(1));
      part = n.reshape(part, shape);
    }
    parts.push_back(part);
  }
  n.result(0,
           n.failed() || parts.size() == 1 ? (n.failed() ? Value() : parts.front()) : n.concat(parts, axis));
}

/// The body once for each entry of the first sequence, other sequences entry by entry, tensors as they are.
void map(NodeImporter &n) {
  const auto *body = n.attribute("body");
  if (!body || !body->has_g())
    return n.fail("the body is missing");
  const size_t count = entriesOf(n, 0).size();
  std::vector<Values> results(n.outputCount());
  for (size_t i = 0; i < count && !n.failed(); ++i) {
    Values inputs;
    for (unsigned input = 0; input < n.inputCount(); ++input) {
      GraphValue *value = outerValue(n, input);
      if (!value || (value->sequence && value->sequence->size() <= i))
        return n.fail("input " + Twine(input) + " is shorter than the first sequence");
      inputs.push_back(value->sequence ? (*value->sequence)[i] : value);
    }
    const auto outputs = inlined(n, body->g(), inputs);
    if (!outputs)
      return;
    if (outputs->size() < results.size())
      return n.fail("the body has " + Twine(outputs->size()) + " outputs");
    for (size_t output = 0; output < results.size(); ++output)
      results[output].push_back((*outputs)[output]);
  }
  for (size_t output = 0; output < results.size() && !n.failed(); ++output)
    n.resultValue(static_cast<unsigned>(output), sequenceOf(n, std::move(results[output])));
}

void optional(NodeImporter &n) {
  n.ignore({"type"});
  if (n.has(0))
    return n.forward(0, 0);
  GraphValue *result = n.owner().newValue(n.wants(0) ? n.proto().output(0) : "");
  result->isEmptyOptional = true;
  n.resultValue(0, result);
}

void hasElement(NodeImporter &n) {
  const GraphValue *value = n.has(0) ? outerValue(n, 0) : nullptr;
  n.resultKnown(0, {Dim(value && !value->isEmptyOptional ? 1 : 0)}, {}, n.builder().getI1Type());
}

void getElement(NodeImporter &n) {
  const GraphValue *value = outerValue(n, 0);
  if (value && value->isEmptyOptional)
    return n.fail("the optional holds nothing");
  n.forward(0, 0);
}

} // namespace

void registerSequences(HandlerTable &table) {
  constexpr unsigned any = HandlerTable::anyNumber;
  table.add("", "SequenceConstruct", 1, any, construct);
  table.add("", "SequenceEmpty", 0, 0, [](NodeImporter &n) { resultSequence(n, {}); });
  table.add("", "SequenceAt", 2, 2, at);
  table.add("", "SequenceInsert", 2, 3, insert);
  table.add("", "SequenceErase", 1, 2, erase);
  table.add("", "SequenceLength", 1, 1, length);
  table.add("", "SequenceMap", 1, any, map);
  table.add("", "SplitToSequence", 1, 2, split);
  table.add("", "ConcatFromSequence", 1, 1, concat);
  table.add("", "Optional", 0, 1, optional);
  table.add("", "OptionalHasElement", 0, 1, hasElement);
  table.add("", "OptionalGetElement", 1, 1, getElement);
}

} // namespace fusion::onnx
