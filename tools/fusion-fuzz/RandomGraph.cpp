#include "RandomGraph.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace fusion::fuzz {

bool isSymbolic(const std::string &dim) { return dim.front() > '9'; }
std::string quoted(const std::string &dim) { return isSymbolic(dim) ? "\"" + dim + "\"" : dim; }

std::string Type::text() const {
  std::string shape;
  for (const std::string &dim : dims)
    shape += (isSymbolic(dim) ? "?" : dim) + "x";
  return "tensor<" + shape + element + ">";
}

std::string RandomGraph::text() const {
  std::set<int> read(outputs.begin(), outputs.end());
  for (const Op &op : ops)
    read.insert(op.operands.begin(), op.operands.end());
  std::string text = "func.func @main(";
  for (int number : inputs) {
    if (!read.contains(number))
      continue;
    const Type &type = values[static_cast<size_t>(number)];
    std::vector<std::string> dims;
    for (const std::string &dim : type.dims)
      dims.push_back(quoted(dim));
    const auto role = roles.find(number);
    text += fmt::format("{}%v{}: {} {{nn.dims = [{}], nn.name = \"{}v{}\"}}",
                        text.ends_with('(') ? "" : ",\n    ", number, type.text(), fmt::join(dims, ", "),
                        role == roles.end() ? "" : role->second + "_", number);
  }
  auto textOf = [&](const std::vector<int> &numbers, bool types) {
    std::vector<std::string> parts;
    for (int number : numbers)
      parts.push_back(types ? values[static_cast<size_t>(number)].text() : fmt::format("%v{}", number));
    return fmt::format("{}", fmt::join(parts, ", "));
  };
  text += fmt::format(")\n    -> ({}) {{\n", textOf(outputs, true));
  for (const Op &op : ops)
    text += fmt::format("  {} = nn.{} {}{} : ({}) -> ({})\n", textOf(op.results, false), op.name,
                        textOf(op.operands, false), op.attributes, textOf(op.operands, true),
                        textOf(op.results, true));
  return text + fmt::format("  return {} : {}\n}}\n", textOf(outputs, false), textOf(outputs, true));
}

/// Without ops whose results nobody reads.
static RandomGraph withoutDead(RandomGraph graph) {
  std::set<int> read(graph.outputs.begin(), graph.outputs.end());
  std::vector<RandomGraph::Op> kept;
  for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op)
    if (std::ranges::any_of(op->results, [&](int result) { return read.contains(result); })) {
      read.insert(op->operands.begin(), op->operands.end());
      kept.push_back(*op);
    }
  graph.ops.assign(kept.rbegin(), kept.rend());
  return graph;
}

/// Without the i-th op: one graph for each operand that may stand for its only result, and one with new
/// inputs.
static std::vector<RandomGraph> without(const RandomGraph &graph, size_t i) {
  const RandomGraph::Op removed = graph.ops[i];
  RandomGraph base = graph;
  base.ops.erase(base.ops.begin() + static_cast<std::ptrdiff_t>(i));
  std::vector<std::vector<int>> replacements(1);
  for (int result : removed.results) {
    base.values.push_back(graph.values[static_cast<size_t>(result)]);
    base.inputs.push_back(static_cast<int>(base.values.size()) - 1);
    replacements[0].push_back(base.inputs.back());
  }
  for (int operand : removed.operands)
    if (removed.results.size() == 1 &&
        graph.values[static_cast<size_t>(operand)] == graph.values[static_cast<size_t>(removed.results[0])])
      replacements.push_back({operand});
  std::vector<RandomGraph> all;
  for (const std::vector<int> &others : replacements) {
    RandomGraph less = base;
    for (size_t result = 0; result < removed.results.size(); ++result) {
      for (RandomGraph::Op &op : less.ops)
        std::ranges::replace(op.operands, removed.results[result], others[result]);
      std::erase(less.outputs, removed.results[result]);
    }
    if (!less.outputs.empty())
      all.push_back(withoutDead(less));
  }
  return all;
}

std::vector<RandomGraph> smallerGraphs(const RandomGraph &graph) {
  std::vector<RandomGraph> all;
  auto withOutput = [&](int output) {
    RandomGraph less = graph;
    less.outputs = {output};
    all.push_back(withoutDead(less));
  };
  for (size_t i = 0; graph.outputs.size() > 1 && i < graph.outputs.size(); ++i)
    withOutput(graph.outputs[i]);
  for (const RandomGraph::Op &op : graph.ops)
    for (int result : op.results)
      withOutput(result);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    for (RandomGraph &less : without(graph, i))
      all.push_back(std::move(less));
  std::erase_if(all, [&](const RandomGraph &less) {
    return less.ops.empty() ||
           (less.ops.size() >= graph.ops.size() && less.outputs.size() >= graph.outputs.size());
  });
  std::ranges::stable_partition(
      all, [&](const RandomGraph &less) { return less.ops.size() < graph.ops.size() / 2; });
  return all;
}

} // namespace fusion::fuzz
