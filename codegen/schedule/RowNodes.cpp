#include "codegen/schedule/RowNodes.h"

#include <fmt/format.h>

#include <set>

using namespace mlir;

namespace fusion::row {

Node *NodeMaker::fail(const Twine &why) {
  if (reason.empty())
    reason = why.str();
  return nullptr;
}

unsigned NodeMaker::outer(ArrayRef<Dim> dims) {
  DimShape shape(dims.begin(), dims.end());
  for (unsigned i = 0; i < graph.outerDims.size(); ++i)
    if (graph.outerDims[i] == shape)
      return i;
  graph.outerDims.push_back(std::move(shape));
  return static_cast<unsigned>(graph.outerDims.size() - 1);
}

Node *NodeMaker::supplied(Node node, DType element) {
  node.value =
      graph.scalars.input(fmt::format("node{}", graph.nodes.size()), element, scalar::Level::Element);
  node.type = graph.scalars.type(node.value);
  return &graph.nodes.emplace_back(std::move(node));
}

/// Whether `value` is made of `part` otherwise than through what is in `seen`.
static bool reads(const scalar::Graph &scalars, scalar::Value value, scalar::Value part,
                  std::set<scalar::Value> &seen) {
  return value == part ||
         (seen.insert(value).second && llvm::any_of(scalars[value].operands, [&](scalar::Value operand) {
            return reads(scalars, operand, part, seen);
          }));
}

Node *NodeMaker::apply(Operation *op, ArrayRef<Node *> operands, Formula formula) {
  Node node;
  node.op = op;
  node.operands.assign(operands.begin(), operands.end());
  SmallVector<scalar::Value> values;
  for (Node *operand : operands) {
    if (!operand)
      return nullptr;
    values.push_back(operand->value);
    node.level = std::max(node.level, operand->level);
    node.phase = std::max(node.phase, operand->phase);
  }
  node.value = formula(graph.scalars, values);
  for (Node &other : graph.nodes)
    if (other.value == node.value && other.kind != Node::Kind::Divisor)
      return &other;
  node.type = graph.scalars.type(node.value);
  std::set<scalar::Value> through(values.begin(), values.end());
  node.readsColumn = reads(graph.scalars, node.value, graph.column, through);
  if (node.readsColumn)
    node.level = Level::Element;
  return &graph.nodes.emplace_back(std::move(node));
}

Node *NodeMaker::reduction(Operation *op, Node::Reduction kind, Node *operand, bool perGroup) {
  if (!operand)
    return nullptr;
  for (Node &node : graph.nodes)
    if (node.kind == Node::Kind::Reduce && node.reduction == kind && node.operands[0] == operand &&
        node.perGroup == perGroup)
      return &node;
  Node node;
  node.kind = Node::Kind::Reduce;
  node.reduction = kind;
  node.op = op;
  node.level = perGroup ? Level::Group : Level::Row;
  node.phase = operand->phase + 1;
  node.operands = {operand};
  node.perGroup = perGroup;
  return supplied(std::move(node), operand->type);
}

Node *NodeMaker::sumOfSquares(Operation *op, Node *operand) {
  if (operand && operand->type == DType::F32)
    return reduction(op, Node::Reduction::SumOfSquares, operand);
  return reduction(op, Node::Reduction::Sum,
                   apply(op, {operand}, [](scalar::Graph &g, auto x) { return g.mul(x[0], x[0]); }));
}

static bool dependsOnGroups(const Node *node) {
  return node->level == Level::Group || llvm::any_of(node->operands, dependsOnGroups);
}

Node *NodeMaker::move(Operation *op, Node *operand, ColumnMap map) {
  if (!operand)
    return nullptr;
  if (operand->level == Level::Row)
    return operand;
  if (dependsOnGroups(operand))
    return fail("a rotary embedding of values that are scaled per group");
  Node node;
  node.kind = Node::Kind::Move;
  node.op = op;
  node.level = Level::Element;
  node.phase = operand->phase;
  node.operands = {operand};
  node.map = map;
  return supplied(std::move(node), graph.scalars[operand->value].roundedTo);
}

Node *NodeMaker::divisor(Operation *op, Node *operand) {
  for (Node &node : graph.nodes)
    if (node.kind == Node::Kind::Divisor && node.operands[0] == operand)
      return &node;
  Node node;
  node.kind = Node::Kind::Divisor;
  node.op = op;
  node.level = operand->level;
  node.phase = operand->phase;
  node.operands = {operand};
  node.value = operand->value;
  return &graph.nodes.emplace_back(std::move(node));
}

Node *NodeMaker::asFloat(Node *node) {
  return !node || node->type == DType::F64 ? node : converted(node, DType::F32);
}

Node *NodeMaker::converted(Node *node, DType registerType) {
  if (!node)
    return nullptr;
  return apply(node->op, {node},
               [&](scalar::Graph &g, auto x) { return g.convertRegister(registerType, x[0]); });
}

// Times the inverse of the width, which differs by a rounding from a division.
scalar::Value NodeMaker::mean(scalar::Value sum) {
  scalar::Graph &g = graph.scalars;
  const DType type = g.type(sum);
  const std::optional<int64_t> width = graph.width.constant();
  if (width && *width != 0 && type == DType::F32)
    return g.mul(sum, g.like(sum, 1.0 / static_cast<double>(*width)));
  const scalar::Value columns = width ? g.number(DType::F32, static_cast<double>(*width))
                                      : g.convertRegister(DType::F32, graph.columns);
  return g.div(sum, g.convertRegister(type, columns));
}

} // namespace fusion::row
