// Einsum as transposes, sums and batched matmuls, operand by operand.
#include "ir/import/OpsShared.h"

#include "llvm/ADT/StringExtras.h"

#include <map>
#include <set>

using namespace mlir;

namespace fusion::onnx {

namespace {

/// A tensor and a letter for each of its dims. Dims of an ellipsis have the letters '0' to '9', counted from
/// the last.
struct Term {
  Value value;
  std::string dims;
};

bool hasDim(StringRef dims, char dim) { return dims.contains(dim); }

/// The letters of one operand, `rank` of them; nothing if there are too few or too many.
std::optional<std::string> spelledOut(StringRef text, int64_t rank) {
  auto dots = text.find("...");
  std::string dims;
  const auto letters = static_cast<int64_t>(text.size()) - (dots == StringRef::npos ? 0 : 3),
             rest = rank - letters;
  if (rest < 0 || rest > 10 || (dots == StringRef::npos && rest != 0))
    return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == dots) {
      for (int64_t left = rest; left > 0; --left)
        dims.push_back(static_cast<char>('0' + left - 1));
      i += 2;
    } else {
      dims.push_back(text[i]);
    }
  }
  return dims;
}

DimShape shapeOf(NodeImporter &node, const Term &term, StringRef dims) {
  const DimShape &shape = node.shapeOf(term.value);
  DimShape result;
  for (char dim : dims) {
    auto at = term.dims.find(dim);
    result.push_back(at == std::string::npos ? Dim(1) : shape[at]);
  }
  return result;
}

/// The term with its dims in the order of `dims`, which has all of them; those that it lacks have size 1.
Term ordered(NodeImporter &node, const Term &term, StringRef dims) {
  if (node.failed() || dims == term.dims)
    return {term.value, dims.str()};
  std::vector<int64_t> perm;
  for (char dim : dims)
    if (auto at = term.dims.find(dim); at != std::string::npos)
      perm.push_back(static_cast<int64_t>(at));
  const DimShape shape = shapeOf(node, term, dims);
  return {node.reshape(node.transpose(term.value, perm), shape), dims.str()};
}

/// Sums over the dims that are not in `kept`.
Term summed(NodeImporter &node, const Term &term, StringRef kept) {
  std::vector<int64_t> axes;
  std::string rest;
  for (auto [index, dim] : llvm::enumerate(term.dims))
    if (hasDim(kept, dim))
      rest.push_back(dim);
    else
      axes.push_back(static_cast<int64_t>(index));
  return axes.empty() ? term : Term{node.reduce(term.value, "sum", axes, false), rest};
}

/// The product of both, summed over the dims that are not in `kept`.
Term contracted(NodeImporter &node, Term left, Term right, StringRef kept) {
  left = summed(node, left, right.dims + kept.str());
  right = summed(node, right, left.dims + kept.str());
  std::string batch, rows, columns, depth;
  for (char dim : left.dims)
    (!hasDim(right.dims, dim) ? rows : hasDim(kept, dim) ? batch : depth).push_back(dim);
  for (char dim : right.dims)
    if (!hasDim(left.dims, dim))
      columns.push_back(dim);
  if (node.failed())
    return {};
  if (depth.empty()) {
    const std::string all = batch + rows + columns;
    return {node.mul(ordered(node, left, all).value, ordered(node, right, all).value), all};
  }
  // [batch…, rows, depth] times [batch…, depth, columns], each of the latter as one dim.
  const DimShape batchLeft = shapeOf(node, left, batch), batchRight = shapeOf(node, right, batch);
  const DimShape rowSizes = shapeOf(node, left, rows), columnSizes = shapeOf(node, right, columns);
  auto matrix = [&](const Term &term, const DimShape &outer, const std::string &first,
                    const std::string &second) {
    DimShape shape = outer;
    shape.push_back(product(shapeOf(node, term, first)));
    shape.push_back(product(shapeOf(node, term, second)));
    return node.reshape(ordered(node, term, batch + first + second).value, shape);
  };
  Value y = node.build<nn::MatmulOp>(
      {matrix(left, batchLeft, rows, depth), matrix(right, batchRight, depth, columns)});
  if (node.failed())
    return {};
  DimShape shape = node.shapeOf(y);
  shape.resize(batch.size());
  shape.insert(shape.end(), rowSizes.begin(), rowSizes.end());
  shape.insert(shape.end(), columnSizes.begin(), columnSizes.end());
  return {node.reshape(y, shape), batch + rows + columns};
}

/// The letters of the result where the equation has none: those that occur once, in alphabetical order.
std::string impliedResult(ArrayRef<Term> terms) {
  std::map<char, int> counts;
  std::string dots, letters;
  for (const Term &term : terms)
    for (char dim : term.dims)
      ++counts[dim];
  for (auto [dim, count] : counts)
    if (llvm::isDigit(dim))
      dots.insert(dots.begin(), dim);
    else if (count == 1)
      letters.push_back(dim);
  return dots + letters;
}

/// The term without dims that have the letter of one before: the elements whose indices there are equal.
Term diagonal(NodeImporter &node, Term term) {
  for (size_t first = 0; first < term.dims.size() && !node.failed(); ++first) {
    const size_t second = term.dims.find(term.dims[first], first + 1);
    if (second == std::string::npos)
      continue;
    // [size, size, rest…], and what indices (i, i) take from it: [size, rest…].
    const auto one = static_cast<int64_t>(first), other = static_cast<int64_t>(second);
    const DimShape shape = node.shapeOf(term.value);
    std::vector<int64_t> perm = {one, other};
    for (int64_t i = 0; i < node.rankOf(term.value); ++i)
      if (i != one && i != other)
        perm.push_back(i);
    if ((shape[first] - shape[second]).isStatic() && !(shape[first] == shape[second])) {
      node.fail("a diagonal of " + shapeString(shape) + ", whose dims " + Twine(first) + " and " +
                Twine(second) + " differ");
      return term;
    }
    node.takeAsEqual(shape[first], shape[second]);
    const Value row = node.reshape(countFrom(node, 0, shape[first]), {shape[first], 1});
    const Value taken = node.build<nn::GatherNdOp>(
        {node.transpose(term.value, perm), node.concat({row, row}, 1)}, node.i64("batch_dims", 0));
    std::string rest = term.dims;
    rest.erase(second, 1);
    rest.erase(first, 1);
    term = {taken, term.dims[first] + rest};
    first = static_cast<size_t>(-1); // there may be another
  }
  return term;
}

void einsum(NodeImporter &node) {
  std::string equation = node.stringAttribute("equation", "");
  llvm::erase(equation, ' ');
  auto [inputs, result] = StringRef(equation).split("->");
  SmallVector<StringRef> texts;
  inputs.split(texts, ',');
  if (texts.size() != node.inputCount())
    return node.fail("the equation '" + equation + "' has " + Twine(texts.size()) + " operands");
  SmallVector<Term> terms;
  for (auto [index, text] : llvm::enumerate(texts)) {
    const auto number = static_cast<unsigned>(index);
    auto dims = spelledOut(text, node.rank(number));
    if (!dims)
      return node.fail("'" + text + "' does not fit " + shapeString(node.shape(number)));
    terms.push_back({node.operand(number), *dims});
  }
  std::string out = impliedResult(terms);
  if (equation.find("->") != std::string::npos) {
    const auto dots = llvm::count_if(out, [](char dim) { return llvm::isDigit(dim); });
    const size_t given = result.size() - (result.contains("...") ? 3 : 0);
    auto dims = spelledOut(result, static_cast<int64_t>(given) + (result.contains("...") ? dots : 0));
    if (!dims)
      return node.fail("the result '" + result + "' is not supported");
    out = *dims;
  }
  if (std::set<char>(out.begin(), out.end()).size() != out.size())
    return node.fail("the result '" + result + "' has a dim twice");
  for (Term &term : terms)
    term = diagonal(node, term);
  for (char dim : out)
    if (llvm::none_of(terms, [&](const Term &term) { return hasDim(term.dims, dim); }))
      return node.fail("no operand has the dim '" + Twine(dim) + "' of the result");
  Term all = terms.front();
  for (size_t i = 1; i < terms.size() && !node.failed(); ++i) {
    std::string kept = out;
    for (size_t later = i + 1; later < terms.size(); ++later)
      kept += terms[later].dims;
    all = contracted(node, all, terms[i], kept);
  }
  node.result(0, ordered(node, summed(node, all, out), out).value);
}

} // namespace

void registerEinsum(HandlerTable &table) { table.add("", "Einsum", 1, HandlerTable::anyNumber, einsum); }

} // namespace fusion::onnx
