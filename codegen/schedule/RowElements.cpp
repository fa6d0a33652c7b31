// The values that the functions of a row kernel's body compute: of the row, of a group, of an element.
#include "codegen/schedule/RowBody.h"

#include <fmt/format.h>

using namespace mlir;

namespace fusion::row {

std::string BodyPrinter::typeName(const Node *node) {
  return node->kind == Node::Kind::Divisor ? "Divisor" : body::spelling(node->type);
}

std::string BodyPrinter::expression(const Node *node, ArrayRef<std::string> operands,
                                    const std::string &column, bool rounded) {
  if (node->kind == Node::Kind::Divisor)
    return fmt::format("divisor({})", operands[0]);
  body::Names names; // nothing is declared
  body::Printer printer(graph.scalars, names);
  printer.inlineAll();
  for (auto [operand, text] : llvm::zip(node->operands, operands))
    if (operand->kind == Node::Kind::Divisor)
      printer.bindDivisor(operand->value, text);
    else
      printer.bind(operand->value, text);
  if (node->readsColumn)
    printer.bind(graph.column, column);
  if (!graph.width.isStatic())
    printer.bind(graph.columns, writer.size(graph.width));
  body::Code code;
  return rounded ? printer.value(node->value, code) : printer.unrounded(node->value, code);
}

bool BodyPrinter::isLive(const Node *node) const {
  auto found = plan.live.find(node);
  return found != plan.live.end() && found->second < current && !isPreloaded(node);
}

std::string BodyPrinter::rowValue(const Node *node) {
  if (auto found = rowNames.find(node); found != rowNames.end())
    return found->second;
  SmallVector<std::string> operands;
  for (const Node *operand : node->operands)
    operands.push_back(rowValue(operand));
  if (node->kind == Node::Kind::Apply && node->operands.empty() && !node->op)
    return rowNames[node] = expression(node, {}, ""); // a literal
  comment(node);
  const std::string text = node->kind == Node::Kind::Load
                               ? body::loadElement(node->access.type, pointerNames.at(node), "0",
                                                   isEarly(node) && !isConstant(node))
                               : expression(node, operands, "0");
  const std::string name = rowMember(typeName(node), "r");
  writer.line(name + " = " + text + ";");
  return rowNames[node] = name;
}

void BodyPrinter::rowValuesFor(const Node *node) {
  if (node->level == Level::Row) {
    rowValue(node);
    return;
  }
  if (node->kind == Node::Kind::Reduce || isLive(node))
    return;
  for (const Node *operand : node->operands)
    rowValuesFor(operand);
}

// A value per group, in the chunk that the loop is at.
std::string BodyPrinter::groupValue(const Node *node) {
  if (node->level == Level::Row)
    return rowValue(node);
  if (node->kind == Node::Kind::Reduce)
    return arrays.at(node) + "[at.k].value";
  if (auto found = groupNames.find(node); found != groupNames.end())
    return found->second;
  SmallVector<std::string> operands;
  for (const Node *operand : node->operands)
    operands.push_back(groupValue(operand));
  comment(node);
  return groupNames[node] = local(typeName(node), "g", expression(node, operands, own.chunk));
}

const BodyPrinter::Position &BodyPrinter::moved(const Position &position, const ColumnMap &map) {
  const std::string key =
      fmt::format("{}/{}:{}:{}", position.key, static_cast<int>(map.kind), map.half, map.headSize);
  if (auto found = positions.find(key); found != positions.end())
    return found->second;
  Position result;
  result.key = key;
  result.from = &position;
  result.map = map;
  result.lane = position.lane;
  result.vector = position.vector;
  if (vectors() && !position.chunk.empty()) {
    const bool byVector = map.kind == ColumnMap::Kind::Clamp ? 2 * map.half % layout.vector == 0
                          : map.kind == ColumnMap::Kind::PairFold
                              ? 2 * map.half % layout.vector == 0 && map.headSize == 0
                              : map.half % layout.vector == 0;
    if (map.kind == ColumnMap::Kind::NextPartner) {
      result.chunk = position.chunk;
      result.lane = fmt::format("({} ^ 1)", position.lane);
    } else if (byVector) {
      result.chunk = local("i64", "other", mappedColumn(map, position.chunk));
    }
    if (map.kind == ColumnMap::Kind::PairFold && !result.chunk.empty()) {
      result.lane = fmt::format("({} / 2)", position.lane);
      result.vector = position.vector / 2;
    }
    result.held = heldChunk(position, map);
    if (!result.chunk.empty())
      result.column = fmt::format("({} + {})", result.chunk, result.lane);
  }
  return positions[key] = result;
}

std::string BodyPrinter::column(const Position &position) {
  if (!position.column.empty())
    return position.column;
  Position &known = positions.at(position.key);
  if (known.column.empty())
    known.column = local("i64", "other", mappedColumn(position.map, column(*position.from)));
  return known.column;
}

// What stands before the loop over a vector's elements: the vectors that it reads, values per group.
void BodyPrinter::prepare(const Node *node, const Position &position) {
  if (node->level == Level::Row)
    return;
  if (node->level == Level::Group) {
    groupValue(node);
    return;
  }
  if (isPacked(node, position) && &ofWholeVector(position) != &position) {
    prepare(node, ofWholeVector(position));
    return;
  }
  if (position.key.empty() && isLive(node))
    return;
  if (node->kind == Node::Kind::Load && vectors() && !position.chunk.empty() &&
      (layout.shifted ? readsVectors(node->access) : isVectorAccess(node->access, position.vector))) {
    if (auto early = preloaded.find(node); early != preloaded.end() && !position.held.empty()) {
      vectorNames[{node, position.key.empty() ? "" : position.chunk}] =
          fmt::format("{}[{}]", early->second, position.held);
      return;
    }
    std::string &name = vectorNames[{node, position.key.empty() ? "" : position.chunk}];
    if (name.empty()) {
      const std::string type = body::spelling(node->access.type);
      name = local(fmt::format("Vec<{}, {}>", type, position.vector), "v",
                   loadVector(node, position.chunk, position.vector, /*early=*/false));
    }
    return;
  }
  const Position &next = node->kind == Node::Kind::Move ? moved(position, node->map) : position;
  for (const Node *operand : node->operands)
    prepare(operand, next);
  if (isPacked(node, position))
    packedVector(node, position);
}

std::string BodyPrinter::applied(const Node *node, const Position &position, bool rounded) {
  SmallVector<std::string> operands;
  for (const Node *operand : node->operands)
    operands.push_back(element(operand, position));
  comment(node);
  return expression(node, operands, node->readsColumn ? column(position) : std::string(), rounded);
}

std::string BodyPrinter::loadedElement(const Node *node, const Position &position) {
  const bool same = !scalar::isNarrow(node->access.type);
  auto vector = vectorNames.find({node, position.key.empty() ? "" : position.chunk});
  if (!position.chunk.empty() && vector != vectorNames.end())
    return fmt::format(fmt::runtime(same ? "{}[{}]" : "element_f32({}, {})"), vector->second, position.lane);
  if (auto early = preloaded.find(node); early != preloaded.end() && position.key.empty())
    return fmt::format(fmt::runtime(same ? "{}[at.k]" : "to_f32({}[at.k])"), early->second);
  const std::string offset = columnOffset(node->access, column(position));
  return body::loadElement(node->access.type, pointerNames.at(node), offset);
}

std::string BodyPrinter::element(const Node *node, const Position &position) {
  if (node->level == Level::Row)
    return rowValue(node);
  if (node->level == Level::Group)
    return groupValue(node);
  const std::string at = fmt::format("at.k * {} + {}", layout.vector, position.lane);
  if (position.key.empty() && isLive(node) && !packed.contains(node))
    return fmt::format("{}[{}]", arrays.at(node), vectors() ? at : "at.k");
  if (node->kind == Node::Kind::Move)
    return element(node->operands[0], moved(position, node->map));
  auto &known = elementNames[{node, position.key}];
  if (!known.empty())
    return known;
  std::string name;
  if (isPacked(node, position)) {
    name = local(typeName(node), "x",
                 fmt::format("element_f32({}, {})", packedVector(node, position), position.lane));
    return elementNames[{node, position.key}] = name;
  }
  name = local(typeName(node), "x",
               node->kind == Node::Kind::Load ? loadedElement(node, position) : applied(node, position));
  if (auto live = plan.live.find(node);
      position.key.empty() && live != plan.live.end() && live->second == current && !isPreloaded(node))
    writer.line(fmt::format("{}[{}] = {};", arrays.at(node), vectors() ? at : "at.k", name));
  return elementNames[{node, position.key}] = name;
}

} // namespace fusion::row
